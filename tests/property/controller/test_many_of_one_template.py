"""As many Schedules as a large installation has, of one Job template."""

from __future__ import annotations

import asyncio

import msgspec

from duepoint.controller import plan
from duepoint.controller.schedules import dryruns
from duepoint.kube import jobs
from tests.support.builders import JOB_TEMPLATE, a_spec
from tests.unit.controller.world import World


def dry_runs(world: World) -> int:
    return sum(verb == "POST" and path.endswith("/jobs") for verb, path in world.api.requests)


async def test_ten_thousand_schedules_of_one_template_cost_one_dry_run():
    world = World()
    asked = dryruns.DryRuns(world.api)
    spec = a_spec(jobTemplate=JOB_TEMPLATE)
    one = plan.decide(spec, None, plan.PublishedStatus(), spec.created_us, target="t").definition
    many = [msgspec.structs.replace(one, name=f"report-{n}", uid=f"u{n}") for n in range(10_000)]
    found = await asyncio.gather(
        *(asked.verdict(known, spec.action.target, None) for known in many)
    )
    assert dry_runs(world) == 1
    assert set(found) == {jobs.Valid()}
