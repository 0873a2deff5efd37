"""What becomes of a ScheduleSet: its record, its status, and what is said when things go wrong."""

from __future__ import annotations

import pytest

from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from duepoint.schedules.sets import setspec
from duepoint.schedules.sets.setrecord import SetState
from tests.support.builders import JOB_TEMPLATE
from tests.unit.controller.setworld import SetWorld

JOBS = {"spec": {**JOB_TEMPLATE["spec"], "ttlSecondsAfterFinished": 600}}


@pytest.fixture
def world():
    return SetWorld()


async def test_a_refused_set_is_stalled_and_its_members_are_held_with_their_old_target(world):
    async with world.leader():
        made = await world.apply_set()
        target = world.record().target
        await world.put(2)
        await world.apply_set(webhook={"url": "ftp://x"}, limits={"members": 5})
        assert world.set_ready() == ("False", "InvalidSpec")
        stalled = world.set_condition("Stalled")
        assert "spec.webhook.url" in stalled["message"]
        record = world.record()
        assert (record.state, record.target, record.generation) == (SetState.STALLED, target, 2)
        assert len(world.members(made["metadata"]["uid"])) == 2
        assert [event.reason for event in world.news] == ["InvalidSpec"]
        await world.apply_set()
        assert world.set_ready() == ("True", "Armed")
        assert world.set_condition("Stalled") is None


async def test_a_set_never_changes_between_jobs_and_other_targets(world):
    async with world.leader():
        await world.apply_set()
        await world.apply_set(jobTemplate=JOBS)
        assert world.set_ready() == ("False", "InvalidSpec")
        assert "create another set" in world.set_condition("Stalled")["message"]


async def test_an_operator_without_the_right_to_hold_objects_says_so(world):
    async with world.leader():
        world.api.fail_next(
            kube_errors.from_answer("PATCH x", 403, {}, b"no right"),
            verb="PATCH",
            resource=schedules.SET_PLURAL,
        )
        await world.apply_set()
        assert world.set_ready() == ("Unknown", "ApiUnavailable")
        assert world.record() is None
        await world.clock.advance(5)
        assert world.set_ready() == ("True", "Armed")


async def test_a_bug_with_one_set_leaves_the_others_alone(world, monkeypatch):
    parse = setspec.parse

    def broken(raw, **where):
        if where["name"] == "broken":
            raise RuntimeError("a bug")
        return parse(raw, **where)

    monkeypatch.setattr(setspec, "parse", broken)
    async with world.leader():
        await world.apply_set("broken")
        await world.apply_set("sound")
        assert world.set_ready("broken") == ("Unknown", "InternalError")
        assert world.set_ready("sound") == ("True", "Armed")


# -- an emptied Redis --------------------------------------------------------------------------


# -- deletion ----------------------------------------------------------------------------------


async def test_a_namesake_waits_for_the_members_of_the_former_set(world):
    async with world.leader():
        first = await world.apply_set()
        await world.put(5_000)
    await world.api.request(
        "PATCH", world.set_path(), [{"op": "remove", "path": "/metadata/finalizers"}],
        content_type="application/json-patch+json",
    )  # fmt: skip
    await world.delete_set()
    second = await world.apply_set()
    async with world.leader(epoch=2):
        assert world.set_ready()[0] in ("Unknown", "True")
        await world.clock.advance(5)
        assert world.set_ready() == ("True", "Armed")
        assert world.record().uid == second["metadata"]["uid"]
        assert len(world.members(first["metadata"]["uid"])) == 0


async def test_members_that_redis_lost_are_told_until_an_edit(world):
    async with world.leader():
        await world.apply_set()
        await world.put(3)
        await world.clock.advance(120)
        await world.lose_redis()
        await world.clock.advance(120)
        lost = world.set_condition("DataLost")
        assert lost["reason"] == "MembersLost"
        assert "there were 3" in lost["message"]
        await world.apply_set(limits={"members": 5})
        await world.clock.advance(120)
        assert world.set_condition("DataLost") is None
