"""No status passes a slot that has not ended without listing it, in whatever order news come."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import sharding
from duepoint.runs.run import RunState
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from tests.fakes.nojobs import no_jobs
from tests.fakes.recordingtarget import RecordingTarget
from tests.unit.controller.status.test_reporter import FIRST, event
from tests.unit.controller.world import World

S = 1_000_000
SECOND_SLOT, THIRD_SLOT = FIRST + 300 * S, FIRST + 600 * S
REFUSED = outcomes.Retry(reason=Reason.FORBIDDEN, message="exceeded quota", started=False)


def put_off(made, slot_us, **changes):
    values = {
        "reason": "Forbidden",
        "message": "exceeded quota",
        "settled_us": 0,
        "due_us": slot_us,
    }
    return event(made, slot_us, RunState.PENDING, **{**values, **changes})


def a_worker(world: World, target: RecordingTarget):
    targets = dict.fromkeys(("webhook", "job", "stream", "kafka"), target)
    return world.worker(targets, target, active_jobs=no_jobs())


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
            "waiting": ["2026-03-01T12:05:00Z"],
        }
        assert world.status()["runs"]["started"] == 1
        created = event(made, FIRST, RunState.RUNNING, reason="Running", job_name="j")
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
        assert world.status()["runs"]["started"] == 1
        assert world.status()["openSlots"]["waiting"] == ["2026-03-01T12:05:00Z"]
    created = event(made, FIRST, RunState.RUNNING, reason="Running", job_name=name)
    await world.tell(uid, created)
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.status()["runs"]["started"] == 2
        assert world.status()["runs"]["succeeded"] == (2 if ends else 1)
        assert "openSlots" not in world.status()


async def drop_outcomes(world):
    """Empty the outcome streams before a leader has read them."""
    index = world.queue.definitions.index
    for shard in sharding.all_shards(world.queue.layouts.known()):
        await index.read("trim", ("XTRIM", index.shard(shard).runs, "MAXLEN", 0))


async def test_an_open_slot_behind_the_chain_that_the_queue_does_not_hold_has_ended():
    """Nobody tells its end: outcomes were dropped, or went with a server."""
    world = World()
    async with world.leader():
        made = await world.apply_job()
        await world.clock.advance(310)
        await world.tell(made["metadata"]["uid"], put_off(made, FIRST))
        await world.clock.advance(5)
        assert world.status()["openSlots"]["waiting"] == ["2026-03-01T12:05:00Z"]
    async with a_worker(world, RecordingTarget(world.clock)):
        await world.clock.advance(5)
    await drop_outcomes(world)
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert "openSlots" not in world.status()
        assert world.status()["settledThrough"] == "2026-03-01T12:05:00Z"
        assert world.status()["runs"]["started"] == 0


async def test_the_watermark_of_a_schedule_without_news_follows_its_chain():
    world = World()
    async with world.leader():
        await world.apply_job()
    async with a_worker(world, RecordingTarget(world.clock)):
        await world.clock.advance(610)
    await drop_outcomes(world)
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.status()["settledThrough"] == "2026-03-01T12:10:00Z"
        assert world.status()["nextScheduleTime"] == "2026-03-01T12:15:00Z"


async def test_a_status_passes_no_slot_whose_outcome_is_not_counted():
    """What the watermark has passed is not run again after a loss of the queue."""
    world = World()
    async with world.leader():
        await world.apply_job()
        async with a_worker(world, RecordingTarget(world.clock)):
            await world.clock.advance(300.05)
            assert any(shard.outcomes for shard in world.queue.shards.values())
            await world.apply_job(successfulJobsHistoryLimit=1)
            assert world.status()["observedGeneration"] == 2
            assert world.status()["settledThrough"] == "2026-03-01T12:05:00Z"
            assert world.status()["runs"]["started"] == 1
