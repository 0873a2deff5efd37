"""Jobs that are gone before anybody has seen them end: the run does not go on for ever."""

from __future__ import annotations

from duepoint.controller.jobs import jobevents
from duepoint.kube import jobs
from duepoint.runs.run import RunState
from tests.support.builders import at
from tests.unit.controller.jobs.test_jobwatch import run_slot
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")


async def forgotten(world, name):
    """The Job vanishes while nobody watches."""
    await world.api.request("DELETE", jobs.path(NAMESPACE, name))


async def test_a_job_that_ended_while_the_operator_was_down_ends_its_run():
    world = World()
    async with world.leader():
        made = await world.apply_job()
        name = await run_slot(world, made, FIRST)
        await world.clock.advance(5)
        assert world.status()["activeCount"] == 1
    world.api.end_job(NAMESPACE, name)
    await world.clock.advance(3600)
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert "activeCount" not in world.status()
        assert world.status()["lastRun"]["outcome"] == "Succeeded"
        assert world.status()["runs"]["succeeded"] == 1


async def test_a_job_that_vanished_while_the_operator_was_down_is_not_active_for_ever():
    world = World()
    async with world.leader():
        made = await world.apply_job()
        name = await run_slot(world, made, FIRST)
        await world.clock.advance(5)
    await forgotten(world, name)
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        status = world.status()
        assert "active" not in status
        assert "activeCount" not in status
        assert status["lastRun"]["outcome"] == "Failed"
        assert status["lastRun"]["reason"] == "Deleted"
        assert status["lastRun"]["message"] == jobevents.LOST.message
        counts = status["runs"]
        assert (counts["started"], counts["succeeded"], counts["failed"]) == (1, 0, 1)
        assert world.condition("LastRunSucceeded")["status"] == "False"


async def test_a_lost_run_by_hand_is_not_started_twice():
    world = World()
    async with world.leader():
        made = await world.apply_job()
        await world.clock.advance(300)
        name = f"nightly-{FIRST // 1_000_000}-0123456789"
        running = event(made, FIRST, RunState.RUNNING, job_name=name, trigger="Manual")
        await world.tell(made["metadata"]["uid"], running)
        await world.clock.advance(5)
        assert world.status()["runs"]["manual"] == 1
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        counts = world.status()["runs"]
        assert (counts["started"], counts["manual"], counts["failed"]) == (1, 1, 1)


async def test_a_job_that_still_runs_is_asked_for_by_nobody_and_stays_active():
    world = World()
    async with world.leader():
        made = await world.apply_job()
        await run_slot(world, made, FIRST)
        await world.clock.advance(5)
    async with world.leader(epoch=2):
        before = len(world.api.requests)
        await world.clock.advance(120)
        assert len(world.api.requests) == before
        assert world.status()["activeCount"] == 1
        assert world.status()["lastRun"]["outcome"] == "Running"
