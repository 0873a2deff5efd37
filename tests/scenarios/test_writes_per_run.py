"""The whole cost of a Job's run for the API server: Job, status, history, Events."""

from __future__ import annotations

import dataclasses

from duepoint.targets import jobtarget, target
from tests.fakes.nojobs import no_jobs
from tests.fakes.recordingtarget import NoEntries
from tests.unit.controller.world import NAMESPACE, World

SCHEDULES = 5
SLOTS = 5
WRITES = {"POST", "PATCH", "PUT", "DELETE"}


class _Jobs(NoEntries):
    """The Job target alone, with the interface that a worker needs."""

    def __init__(self, world: World) -> None:
        self._target = jobtarget.JobTarget(world.api, world.clock)

    async def fire(self, firing: target.Firing):
        return await self._target.fire(firing)

    async def check(self, _firing: target.Firing) -> None:
        return None


def working(world: World):
    target = _Jobs(world)
    return world.worker({"job": target}, target, active_jobs=no_jobs())


async def end_jobs(world: World) -> int:
    """End every running Job, and return how many there were."""
    running = [one for one in world.api.all_stored("jobs") if "status" not in one]
    for one in running:
        world.api.end_job(NAMESPACE, one["metadata"]["name"])
    await world.clock.settle()
    return len(running)


@dataclasses.dataclass(frozen=True)
class Cost:
    runs: int
    by_verb: dict[str, int]

    @property
    def per_run(self) -> float:
        return sum(self.by_verb.values()) / self.runs


async def cost_of(world: World, *, runs_for: float, every: int = 300) -> Cost:
    """Return the cost of some slots of some Schedules, after one that fills the history."""
    for number in range(SCHEDULES):
        # Spread over time, as in a calm cluster.
        fields = {"schedule": f"@every {every}s", "successfulJobsHistoryLimit": 1}
        await world.apply_job(f"report-{number}", **fields)
        await world.clock.advance(every / SCHEDULES)
    runs = 0
    async with working(world):
        for slot in range((SLOTS + 1) * SCHEDULES):
            if slot == SCHEDULES:
                runs, before = 0, len(world.api.requests)
            await world.clock.advance(runs_for)
            runs += await end_jobs(world)
            await world.clock.advance(every / SCHEDULES - runs_for)
    made = [verb for verb, _ in world.api.requests[before:] if verb in WRITES]
    return Cost(runs=runs, by_verb={verb: made.count(verb) for verb in sorted(set(made))})


async def test_a_calm_run_costs_four_writes_at_most():
    async with World().leader() as world:
        cost = await cost_of(world, runs_for=20)
    assert cost.runs >= SLOTS * SCHEDULES - SCHEDULES
    assert cost.per_run <= 4, cost


async def test_a_run_that_ends_within_two_seconds_costs_three():
    async with World().leader() as world:
        cost = await cost_of(world, runs_for=1)
    assert cost.runs >= SLOTS * SCHEDULES - SCHEDULES
    assert cost.per_run <= 3, cost
