"""``suspendUntil`` passes without an edit, and the status says so."""

from __future__ import annotations

from tests.unit.controller.world import World

UNTIL = "2026-03-01T12:20:00Z"


async def suspended(world: World, **fields):
    return await world.apply(suspend=True, suspendUntil=UNTIL, **fields)


async def test_it_is_armed_from_then_on_and_its_slots_are_counted_as_skipped():
    async with World().leader() as world:
        await suspended(world)
        await world.clock.advance(60)
        assert world.ready() == ("True", "Suspended")
        writes = world.status_writes()
        await world.clock.advance(1_139)
        assert world.ready() == ("True", "Suspended")
        await world.clock.advance(2)
        assert world.ready() == ("True", "Armed")
        assert world.status()["runs"]["skipped"] == 3  # 12:05, 12:10, 12:15; 12:20 runs
        (past,) = [one for one in world.status()["recentRuns"] if one["outcome"] == "Skipped"]
        assert (past["scheduledTime"], past["count"]) == ("2026-03-01T12:15:00Z", 3)
        assert past["reason"] == "Suspended"
        assert world.status()["nextScheduleTime"] == "2026-03-01T12:25:00Z"
        assert world.status_writes() == writes + 1
