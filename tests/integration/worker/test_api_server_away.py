"""Jobs of a Schedule that is due each second, while the API server is away for ten minutes."""

from __future__ import annotations

import pytest

from duepoint.runs.run import RunState
from duepoint.schedules.conditions import Reason
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support.builders import a_definition, a_rule
from tests.support.jobworkplace import DOWN, JOB, NOON, SECOND, JobWorkplace, name
from tests.support.workplace import EPOCH

SLOTS = range(1, 600)


@pytest.fixture
async def place():
    made = JobWorkplace()
    await made.queue.membership.open(4, EPOCH)
    return made


async def outage(place: JobWorkplace, monkeypatch: pytest.MonkeyPatch, **policy: object) -> None:
    """All slots fall due while the API server answers nobody; then it does."""
    rule = a_rule("@every 1s", whole_seconds=True, policy=policy, end_us=NOON + 600 * SECOND)
    await place.arm(a_definition(rule=rule, created_us=NOON, not_before_us=NOON), JOB)

    async def refused(*_args: object, **_named: object) -> bytes:
        raise DOWN

    async with place.working(place.a_worker()):
        with monkeypatch.context() as patch:
            patch.setattr(FakeKubernetes, "request", refused)
            await place.clock.advance(605)
        await place.clock.advance(120)


async def ends(place: JobWorkplace) -> dict[int, tuple[RunState, str]]:
    told = await place.told()
    found = {slot: (state, reason) for slot, state, reason in told}
    assert len(found) == len(told)  # each ends once
    return found


async def test_every_job_that_the_policy_runs_is_made_once(place, monkeypatch):
    await outage(place, monkeypatch, catch_up="All", catch_up_limit=600)
    assert sorted(place.jobs_there()) == sorted(map(name, SLOTS))
    assert {*(await ends(place)).values()} == {(RunState.RUNNING, Reason.CREATED)}
    assert [one for shard in place.queue.shards.values() for one in shard.dead] == []


@pytest.mark.parametrize("catch_up", ["Latest", "All", "None"])
async def test_a_job_that_too_many_wait_behind_is_missed_and_not_a_failed_run(
    place, monkeypatch, catch_up
):
    await outage(place, monkeypatch, catch_up=catch_up)
    assert sorted(place.jobs_there()) == sorted(map(name, SLOTS[-100:]))
    told = await ends(place)
    assert {told[slot] for slot in SLOTS[:-100]} == {(RunState.MISSED, Reason.CATCH_UP_LIMIT)}
    assert {told[slot] for slot in SLOTS[-100:]} == {(RunState.RUNNING, Reason.CREATED)}
    letters = [one for shard in place.queue.shards.values() for one in shard.dead]
    assert len(letters) == len(SLOTS) - 100  # and can be replayed
