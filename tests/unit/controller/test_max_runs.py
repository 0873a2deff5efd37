"""maxRuns in the operator: what is armed, what a rebuild begins with, and what the status shows."""

from __future__ import annotations

from duepoint.runs.run import RunEvent, RunState
from tests.support.builders import at
from tests.unit.controller.world import World

MINUTE = 60_000_000


def ran(made, slot_us, *, trigger="Schedule", completed=False, name="", run_uid=""):
    return RunEvent(
        uid=made["metadata"]["uid"],
        namespace="reports",
        name="nightly",
        generation=made["metadata"]["generation"],
        slot_us=slot_us,
        trigger=trigger,
        state=RunState.SUCCEEDED,
        reason="Succeeded",
        at_us=slot_us,
        started_us=slot_us,
        finished_us=slot_us,
        settled_us=slot_us if trigger == "Schedule" else 0,
        completed=completed,
        job_name=name,
        run_uid=run_uid,
    )


SLOTS = [at(f"2026-03-01 12:{minute:02}:00") for minute in range(5, 60, 5)]


async def test_manual_runs_are_counted_apart_and_take_no_run():
    async with World().leader() as world:
        made = await world.apply(maxRuns=2)
        manual = ran(made, SLOTS[0] - MINUTE, trigger="Manual", name="by-hand", run_uid="u-1")
        await world.clock.advance(300)
        await world.tell(made["metadata"]["uid"], manual, ran(made, SLOTS[0]))
        await world.clock.advance(5)
        assert world.status()["runs"]["started"] == 2
        assert world.status()["runs"]["manual"] == 1
        assert len(world.status()["upcomingTimes"]) == 1
        assert world.ready() == ("True", "Armed")


async def test_a_lost_index_is_rebuilt_with_the_runs_that_have_started():
    world = World()
    async with world.leader() as first:
        made = await first.apply(maxRuns=3)
        manual = ran(made, SLOTS[0] - MINUTE, trigger="Manual", name="by-hand", run_uid="u-1")
        await first.clock.advance(600)
        await first.tell(made["metadata"]["uid"], manual, ran(made, SLOTS[0]), ran(made, SLOTS[1]))
        await first.clock.advance(5)
    world.queue = type(world.queue)(world.clock)
    async with world.leader(epoch=2) as second:
        stored = second.definition(made["metadata"]["uid"])
        assert (stored.started, stored.runs_left) == (2, 1)
