"""Statuses that are looked at although nothing was reported of them."""

from __future__ import annotations

from duepoint.controller import plan
from duepoint.controller.status import writer
from tests.support.builders import at
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")


def lie(world: World, **fields) -> None:
    """Somebody writes these fields through the status subresource."""
    stored = world.object()
    status = {**stored["status"], **fields}
    world.api.put(("schedules", NAMESPACE, "nightly"), stored | {"status": status})


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


async def test_two_writers_of_one_status_do_not_chase_each_other():
    async with World().leader() as world:
        await world.apply(suspend=True)
        await world.clock.advance(10)
        writes = world.status_writes()
        for number in range(600):
            if world.status().get("activeCount") is None:
                lie(world, activeCount=number + 1)
            await world.clock.advance(1)
        assert 3 <= world.status_writes() - writes <= 600 / writer.STEADY_SECONDS + 3


S = 1_000_000


async def test_a_jittered_slot_is_next_until_it_is_due():
    async with World().leader() as world:
        made = await world.apply(jitter="4m")
        await world.clock.advance(10)
        writes = world.status_writes()
        known = world.definition(made["metadata"]["uid"])
        due_us = plan.slots_of(known).due_slot(FIRST).due_us
        assert due_us > FIRST
        await world.clock.advance((due_us - world.clock.now_us()) / S)
        assert world.status_writes() == writes
        await world.clock.advance(6)
        assert world.status()["nextScheduleTime"] == "2026-03-01T12:10:00Z"
