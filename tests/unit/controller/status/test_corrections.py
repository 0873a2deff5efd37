"""A status that somebody else wrote is put right, and two writers do not chase each other."""

from __future__ import annotations

from tests.support.builders import at
from tests.unit.controller.jobs.test_jobwatch import run_slot
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")


def lie(world: World, **fields) -> None:
    """Somebody writes these fields through the status subresource."""
    stored = world.object()
    status = {**stored["status"], **fields}
    world.api._store("MODIFIED", ("schedules", NAMESPACE, "nightly"), stored | {"status": status})


async def test_a_status_that_somebody_edits_is_put_right_within_moments():
    async with World().leader() as world:
        made = await world.apply()
        await world.clock.advance(301)
        await world.tell(made["metadata"]["uid"], event(made, FIRST))
        await world.clock.advance(5)
        right = world.status()
        lie(world, activeCount=7, nextScheduleTime="2031-01-01T00:00:00Z")
        await world.clock.advance(5)
        assert world.status() == right


async def test_a_foreign_status_that_the_watch_missed_is_put_right_by_the_resync():
    async with World().leader() as world:
        await world.apply()
        await world.clock.advance(5)
        right = world.status()
        world.watches = False
        lie(world, activeCount=7)
        await world.resync.run()
        await world.clock.advance(5)
        assert world.status() == right


async def test_two_writers_of_one_status_do_not_chase_each_other():
    async with World().leader() as world:
        await world.apply(suspend=True)
        await world.clock.advance(10)
        writes = world.status_writes()
        for number in range(3600):
            if world.status().get("activeCount") is None:
                lie(world, activeCount=number + 1)
            await world.clock.advance(1)
        assert 3 <= world.status_writes() - writes <= 20


async def test_our_own_writes_that_are_seen_late_are_not_written_again():
    async with World().leader() as world:
        made = await world.apply_job()
        await world.clock.advance(10)
        await run_slot(world, made, FIRST)
        await world.clock.advance(10)
        writes = world.status_writes()
        await world.resync.run()
        await world.clock.advance(60)
        assert world.status_writes() == writes
