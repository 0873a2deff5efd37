"""ScheduleRuns: triggers and backfills, from the object to what ran and what is told."""

from __future__ import annotations

import pytest

from duepoint.kube import errors as kube_errors
from tests.unit.controller.runworld import RunWorld
from tests.unit.controller.world import NAMESPACE


async def test_a_large_payload_is_carried_by_a_leader_that_takes_over():
    world = RunWorld()
    async with world.leader():
        await world.run_schedule(trigger={"payload": "x" * 50_000})
        await world.clock.advance(2)
    await world.apply()
    async with world.leader(), world.working():
        await world.clock.advance(5)
        (firing,) = world.target.fired
        assert len(firing.action.payload) == 50_002
        assert world.run_condition("Complete")["status"] == "True"


async def test_slots_after_the_creation_of_the_backfill_are_left_to_the_schedule():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 */6 * * *")
        await world.run_schedule(
            backfill={"from": "2026-03-01T00:00:00Z", "to": "2026-03-02T00:00:00Z"}
        )
        await world.clock.advance(5)
        assert len(world.target.fired) == 3  # 0, 6 and 12 o'clock; now it is noon
        assert world.counts() == (3, 3, 3, 0, 0)


@pytest.mark.parametrize("is_newer", [True, False])
async def test_a_refused_status_makes_no_slot_of_a_schedulerun_run_again(is_newer):
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        quarter = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T00:15:00Z"}
        await world.backfill(maxParallel=1, **quarter)
        await world.clock.advance(0.2)
        refusal = kube_errors.Invalid("may not fall", causes=(("status", "may not fall"),))
        for _ in range(3):
            world.api.fail_next(refusal, verb="PATCH", resource="scheduleruns")
        if is_newer:  # by a former leader, of the run that it has seen last
            status = {**world.run_status(), "message": "0 of 3 runs have ended"}
            key = ("scheduleruns", NAMESPACE, "again")
            world.api.put(key, world.run_object() | {"status": status})
        await world.clock.advance(30)
        assert world.counts() == (3, 3, 3, 0, 0)
        assert world.run_condition("Complete")["status"] == "True"
        assert len(world.target.fired) == 3
        assert not any(shard.outcomes for shard in world.queue.shards.values())
