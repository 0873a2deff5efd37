"""A namespace that is going: no Job, no storm of requests, and every slot says why."""

from __future__ import annotations

import pytest

from duepoint.kube import jobs
from tests.scenarios.test_completions import workers
from tests.unit.controller.world import NAMESPACE, World

TWO_SLOTS_SECONDS = 620


def asked(world: World) -> int:
    """How often a Job was asked for, dry runs included."""
    return world.api.requests.count(("POST", jobs.collection(NAMESPACE)))


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace", "Queue"])
async def test_a_slot_is_missed_with_that_reason_after_one_request(policy):
    async with World().leader() as world, workers(world, "a", "b"):
        await world.apply_job(schedule="*/5 * * * *", concurrencyPolicy=policy)
        before = asked(world)
        world.api.terminating.add(NAMESPACE)
        await world.clock.advance(TWO_SLOTS_SECONDS)
        counts = world.status()["runs"]
        assert (counts["missed"], counts["failed"], counts["started"]) == (2, 0, 0)
        assert asked(world) == before + 2
        told = [one for one in world.news if one.reason == "RunMissed"]
        assert "NamespaceTerminating" in told[0].note
        assert world.condition("LastRunSucceeded") is None


async def test_deleting_the_schedule_takes_its_points_with_it():
    async with World().leader() as world, workers(world, "a"):
        uid = (await world.apply_job(schedule="*/5 * * * *"))["metadata"]["uid"]
        world.api.terminating.add(NAMESPACE)
        await world.delete()
        before = asked(world)
        await world.clock.advance(TWO_SLOTS_SECONDS)
        assert world.chain_due_us(uid) is None
        assert asked(world) == before
