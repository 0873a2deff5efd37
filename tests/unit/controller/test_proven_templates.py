"""A Job that was created says more of its template than a dry run that got no verdict."""

from __future__ import annotations

from duepoint.controller.status import writer
from duepoint.runs.run import RunState
from tests.support.builders import at
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

S = 1_000_000
FIRST = at("2026-03-01 12:05:00")


async def quota_keeps_the_verdict_away(world: World) -> dict:
    world.api.job_quota[NAMESPACE] = 0
    made = await world.apply_job()
    await world.clock.advance((FIRST - world.clock.now_us()) / S)
    assert world.ready() == ("Unknown", "DryRunPending")
    return made


async def create_and_tell(world: World, made: dict, generation: int) -> None:
    """One Job gets through, and the quota is used up again at once."""
    world.api.job_quota[NAMESPACE] = 1
    name = await world.create_job(made, FIRST)
    running = event(made, FIRST, RunState.RUNNING, job_name=name, generation=generation)
    await world.tell(made["metadata"]["uid"], running)


async def test_a_created_job_ends_a_dry_run_that_is_pending():
    async with World().leader() as world:
        made = await quota_keeps_the_verdict_away(world)
        await create_and_tell(world, made, 1)
        await world.clock.advance(writer.STALENESS_SECONDS)
        assert world.ready() == ("True", "Armed")
        assert world.status()["observedGeneration"] == 1
        await world.clock.advance(300)
        assert world.ready() == ("True", "Armed")
