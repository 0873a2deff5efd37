"""No status passes a slot that has not ended without listing it, in whatever order news come."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from duepoint.runs import outcome as outcomes
from duepoint.runs.run import RunState
from duepoint.schedules.conditions import Reason
from duepoint.worker.claimer import Claimer, Limits
from duepoint.worker.firing import Bounds, Firer
from tests.fakes.recordingtarget import RecordingTarget
from tests.support.builders import at
from tests.unit.controller.status.test_reporter import FIRST, event
from tests.unit.controller.world import World

S = 1_000_000
SECOND_SLOT, THIRD_SLOT = FIRST + 300 * S, FIRST + 600 * S
REFUSED = outcomes.Retry(reason=Reason.QUOTA_EXCEEDED, message="exceeded quota", started=False)


def put_off(made, slot_us, **changes):
    values = {
        "reason": "QuotaExceeded",
        "message": "exceeded quota",
        "settled_us": 0,
        "due_us": slot_us,
    }
    return event(made, slot_us, RunState.PENDING, **{**values, **changes})


@contextlib.asynccontextmanager
async def a_worker(world: World, target: RecordingTarget):
    bounds = Bounds(concurrency=16, lease_seconds=10.0)
    claimer = Claimer(
        world.queue,
        Firer(queue=world.queue, target=target, clock=world.clock, bounds=bounds, dice=lambda: 0.5),
        world.clock,
        world.health,
        worker="worker-a",
        limits=Limits(batch=100, under_way=200, lease_seconds=10.0, grace_seconds=20.0),
    )
    task = asyncio.create_task(claimer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_status_lists_the_slot_that_is_put_off_while_later_ones_end():
    async with World().leader() as world:
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(910)
        await world.tell(uid, put_off(made, FIRST))
        await world.tell(uid, event(made, SECOND_SLOT))
        await world.clock.advance(5)
        assert world.status()["lastScheduleTime"] == "2026-03-01T12:10:00Z"
        assert world.status()["settledThrough"] == "2026-03-01T12:10:00Z"
        assert world.status()["openSlots"] == {
            "count": 1,
            "oldest": "2026-03-01T12:05:00Z",
            "waiting": "2026-03-01T12:05:00Z",
        }
        assert world.status()["runs"]["started"] == 1
        created = event(made, FIRST, RunState.RUNNING, reason="Created", job_name="j")
        await world.tell(uid, created)
        await world.clock.advance(5)
        assert "openSlots" not in world.status()
        assert world.status()["settledThrough"] == "2026-03-01T12:10:00Z"
        assert world.status()["runs"]["started"] == 2


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "running"])
async def test_a_run_whose_job_was_seen_before_the_word_of_the_queue_is_counted_once(ends):
    """The leader that saw the Job was replaced before it had read that the slot has ended."""
    world = World()
    async with world.leader():
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(910)
        await world.tell(uid, put_off(made, FIRST))
        await world.tell(uid, event(made, SECOND_SLOT))
        name = await world.create_job(made, FIRST)
        if ends:
            world.api.end_job("reports", name)
        await world.clock.advance(5)
        assert world.status()["runs"]["started"] == 2
        assert world.status()["openSlots"] == {
            "count": 1,
            "oldest": "2026-03-01T12:05:00Z",
            "started": "2026-03-01T12:05:00Z",
        }
    created = event(made, FIRST, RunState.RUNNING, reason="Created", job_name=name)
    await world.tell(uid, created)
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.status()["runs"]["started"] == 2
        assert world.status()["runs"]["succeeded"] == (2 if ends else 1)
        assert "openSlots" not in world.status()


async def test_a_slot_put_off_once_more_after_it_has_ended_holds_nothing_up():
    async with World().leader() as world:
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(910)
        await world.tell(uid, put_off(made, FIRST), event(made, FIRST), put_off(made, FIRST))
        await world.tell(uid, event(made, SECOND_SLOT))
        await world.clock.advance(5)
        assert world.status()["settledThrough"] == "2026-03-01T12:10:00Z"


async def test_news_of_a_slot_that_is_put_off_are_acknowledged_at_once_and_cost_one_write():
    async with World().leader() as world:
        made = await world.apply_job()
        await world.clock.advance(310)
        writes = world.status_writes()
        await world.tell(made["metadata"]["uid"], put_off(made, FIRST))
        await world.clock.advance(1)
        assert sum(len(shard.outcomes) for shard in world.queue.shards.values()) == 0
        for _ in range(5):
            await world.tell(made["metadata"]["uid"], put_off(made, FIRST))
            await world.clock.advance(5)
        assert world.status_writes() == writes + 1
        assert world.status()["openSlots"]["count"] == 1


async def test_a_new_leader_learns_from_the_queue_which_slots_are_open():
    world = World()
    target = RecordingTarget(world.clock)
    target.always_reply(lambda firing: REFUSED if firing.slot_us == FIRST else None)
    async with world.leader():
        made = await world.apply_job()
        async with a_worker(world, target):
            await world.clock.advance(320)
    async with world.leader(epoch=2):
        await world.tell(made["metadata"]["uid"], event(made, SECOND_SLOT))
        await world.clock.advance(5)
        assert world.status()["settledThrough"] == "2026-03-01T12:10:00Z"
        assert world.status()["openSlots"]["waiting"] == "2026-03-01T12:05:00Z"


async def test_slots_that_a_full_stream_never_told_the_end_of_are_forgotten_in_the_end():
    async with World().leader() as world:
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(610)
        await world.tell(uid, put_off(made, FIRST))
        await world.tell(uid, event(made, SECOND_SLOT))
        await world.clock.advance(1_200)
        assert world.status()["openSlots"]["count"] == 1
        await world.clock.advance(3_600)
        assert "openSlots" not in world.status()
        assert world.status()["settledThrough"] == "2026-03-01T12:10:00Z"


async def test_the_job_of_an_open_slot_is_not_deleted_though_an_edit_has_passed_it():
    async with World().leader() as world:
        made = await world.apply_job(successfulJobsHistoryLimit=0)
        uid = made["metadata"]["uid"]
        await world.clock.advance(310)
        await world.tell(uid, put_off(made, FIRST))
        await world.apply_job(successfulJobsHistoryLimit=0, schedule="*/7 * * * *")
        name = await world.create_job(made, FIRST)
        world.api.end_job("reports", name)
        await world.clock.advance(60)
        assert world.status()["settledThrough"] > "2026-03-01T12:05:00Z"
        assert world.api.stored("jobs", "reports", name) is not None


async def test_an_emptied_queue_loses_no_slot_that_was_being_put_off():
    world = World()
    target = RecordingTarget(world.clock)

    def reply(firing):
        if firing.slot_us == FIRST and not released:
            return REFUSED
        return outcomes.Delivered(accepted_us=world.clock.now_us(), running=True, job_name="j")

    released: list[bool] = []
    target.always_reply(reply)
    async with world.leader():
        await world.apply_job(catchUpPolicy="All")
        async with a_worker(world, target):
            await world.clock.advance(900)
        assert world.status()["lastScheduleTime"] == "2026-03-01T12:10:00Z"
        assert world.status()["openSlots"]["oldest"] == "2026-03-01T12:05:00Z"
    world.queue.flush()
    released.append(True)
    del target.fired[:]
    async with world.leader(epoch=2):
        async with a_worker(world, target):
            await world.clock.advance(120)
        assert [firing.slot_us for firing in target.fired] == [FIRST, THIRD_SLOT]
        assert world.status()["settledThrough"] >= "2026-03-01T12:10:00Z"
        assert "openSlots" not in world.status()


async def test_an_emptied_queue_is_rebuilt_under_a_leader_that_knew_open_slots():
    world = World()
    target = RecordingTarget(world.clock)
    target.always_reply(
        lambda firing: (
            REFUSED
            if firing.slot_us == FIRST
            else outcomes.Delivered(accepted_us=world.clock.now_us(), running=True, job_name="j")
        )
    )
    async with world.leader():
        await world.apply_job(catchUpPolicy="Latest")
        async with a_worker(world, target):
            await world.clock.advance(700)
        await world.lose_redis()
        await world.resync.run()
        async with a_worker(world, target):
            await world.clock.advance(120)
        # no catch-up drops it in favour of a newer one: it was handed over before
        assert target.fired[-1].slot_us == FIRST
        assert world.status()["runs"]["missed"] == 0
        assert world.status()["openSlots"]["waiting"] == "2026-03-01T12:05:00Z"


async def test_slots_that_an_edit_has_ended_are_not_listed_after_an_emptied_queue():
    """No event ends them: the index that is made anew never had points of theirs."""
    world = World()
    async with world.leader():
        made = await world.apply_job(catchUpPolicy="All")
        await world.clock.advance(610)
        await world.tell(made["metadata"]["uid"], put_off(made, FIRST), event(made, SECOND_SLOT))
        await world.clock.advance(5)
        assert world.status()["openSlots"]["waiting"] == "2026-03-01T12:05:00Z"
    world.queue.flush()
    await world.apply_job(catchUpPolicy="All", schedule="*/7 * * * *")
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.status()["observedGeneration"] == 2
        assert "openSlots" not in world.status()


async def test_planned_slots_are_listed_until_each_has_ended():
    async with World().leader() as world:
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(910)
        opened = put_off(made, FIRST, reason="", message="", more_us=(SECOND_SLOT,))
        await world.tell(uid, opened, event(made, THIRD_SLOT), event(made, FIRST))
        await world.clock.advance(5)
        assert world.status()["openSlots"]["waiting"] == "2026-03-01T12:10:00Z"
        await world.tell(uid, event(made, SECOND_SLOT))
        await world.clock.advance(5)
        assert "openSlots" not in world.status()
        assert world.status()["settledThrough"] == "2026-03-01T12:15:00Z"


def test_the_slots_of_these_tests_are_those_of_the_schedule():
    assert at("2026-03-01 12:05:00") == FIRST
