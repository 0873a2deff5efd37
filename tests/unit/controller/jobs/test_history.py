"""Jobs that stay while a request that may make them again is under way, and Jobs that are back."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import messages
from duepoint.runs.run import RunState
from duepoint.schedules import points
from duepoint.schedules.points import PointKind
from tests.support.builders import at
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")


S = 1_000_000


async def ended_job(world: World, *, tell: bool = True, **fields) -> str:
    """The Job of the first slot, made, told of and ended."""
    made = await world.apply_job(successfulJobsHistoryLimit=0)
    await world.clock.advance((FIRST - world.clock.now_us()) / S)
    name = await world.create_job(made, FIRST)
    if tell:
        running = event(made, FIRST, RunState.RUNNING, job_name=name, **fields)
        await world.tell(made["metadata"]["uid"], running)
    await world.clock.advance(2)
    world.api.end_job(NAMESPACE, name)
    return name


def has_job(world: World, name: str) -> bool:
    return world.api.stored("jobs", NAMESPACE, name) is not None


@pytest.mark.parametrize("kind", [PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED])
async def test_a_job_stays_while_the_queue_holds_its_slot_that_has_ended_by_the_status(
    kind,
):
    async with World().leader() as world:
        name = await ended_job(world)
        known = world.definition(world.object()["metadata"]["uid"])
        point = points.DuePoint(
            schedule_id=known.id,
            timing_version=known.timing_version,
            kind=kind,
            due_us=FIRST + 600 * S,
            slot_us=FIRST,
        )
        armed = await world.queue.occurrences.enqueue(
            known, point, messages.OccurrenceRecord(), messages.Epoch(1)
        )
        assert armed is messages.Armed.APPLIED
        await world.clock.advance(100)
        assert has_job(world, name)
        await world.queue.occurrences.withdraw(known, point, messages.Epoch(1))
        await world.clock.advance(40)
        assert not has_job(world, name)
