"""What the API server's answers become. Its own behaviour: tests/integration/targets."""

from __future__ import annotations

import msgspec
import pytest

from duepoint import clock
from duepoint.kube import errors
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.targets import jobtarget, outcome
from tests.fakes import fakekubernetes
from tests.support import firings

SET = points.SetIdentity(uid="0000-set", namespace="default", name="reminders")


@pytest.fixture
def server():
    return fakekubernetes.FakeKubernetes()


async def fire(server, action=None, **changes):
    target = jobtarget.JobTarget(server, clock.SystemClock())
    return await target.fire(firings.a_firing(action or firings.a_job(), **changes))


@pytest.mark.parametrize("owner", [None, SET], ids=["of a Schedule", "of a member"])
async def test_a_reply_that_was_lost_is_found_out_by_the_name(server, owner):
    server.fail_next(errors.Unavailable("cut"), verb="POST", applied=True)
    assert isinstance(await fire(server, owner=owner), outcome.Retry)
    assert isinstance(await fire(server, owner=owner, attempt=2), outcome.Delivered)
    assert len(server.all_stored("jobs")) == 1


async def test_a_members_name_taken_by_another_set_is_a_conflict(server):
    await fire(server, owner=msgspec.structs.replace(SET, uid="another-uid"))
    given = await fire(server, owner=SET)
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.NAME_CONFLICT


@pytest.mark.parametrize(
    ("error", "unanswered"),
    [
        (errors.Unavailable("cut"), True),
        (errors.Unavailable("504", status=504), True),
        (errors.Unavailable("refused", sent=False), False),
        (errors.Throttled("wait", status=429, sent=False), False),
    ],
    ids=["cut", "time-out-of-the-server", "never-sent", "throttled"],
)
async def test_a_request_without_an_answer_may_come_later(server, error, unanswered):
    target = jobtarget.JobTarget(server, clock.SystemClock())
    server.fail_next(error, verb="POST")
    put_off = await target.fire(firings.a_firing(firings.a_job()))
    assert put_off.unanswered == unanswered


@pytest.mark.parametrize(
    "template",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"spec": None, "metadata": None}, id="nulls"),
        pytest.param({"spec": {"template": {"spec": {"containers": []}}}}, id="no containers"),
        pytest.param({"spec": {"template": {"spec": {"containers": "x"}}}}, id="no list"),
    ],
)
async def test_a_template_that_makes_no_job_is_not_repeated(server, template):
    given = await fire(server, firings.a_job(template))
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.INVALID_JOB_TEMPLATE
    assert not given.started


async def test_a_payload_that_no_job_can_carry_is_not_repeated(server):
    given = await fire(server, payload="x" * 300_000)
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.INVALID_JOB_TEMPLATE
    assert server.requests == []
