"""ScheduleRuns whose Schedule is deleted: they end, and their counts match what ran."""

from __future__ import annotations

import collections

import pytest

from duepoint.kube import jobs
from tests.unit.controller.runworld import NAMESPACE, RunWorld

SLOTS = 24
HOURLY = "0 * * * *"


async def a_backfill(world, *, job=False, **fields):
    apply = world.apply_job if job else world.apply
    await apply(schedule=HOURLY, **({"successfulJobsHistoryLimit": 100} if job else {}))
    await world.backfill(**{"maxParallel": 4, **fields})


def fired(world):
    """Return how often each slot was delivered for a ScheduleRun, under any id."""
    return collections.Counter(one.slot_us for one in world.target.fired if one.run_uid)


async def collect_jobs(world):
    """Delete the Jobs of a deleted Schedule, as Kubernetes does."""
    for job in world.jobs():
        await world.api.request("DELETE", jobs.path(NAMESPACE, job["metadata"]["name"]))
    await world.clock.settle()


def told(world, name="again"):
    failed = world.run_condition("Failed", name)
    assert failed is not None, world.run_status(name)
    assert world.run_condition("Stalled", name)["reason"] == failed["reason"]
    assert "active" not in world.run_status(name)
    assert "completionTime" in world.run_status(name)
    return failed["reason"]


@pytest.mark.parametrize("order", ["OldestFirst", "NewestFirst"])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.11, 0.2, 0.5])
async def test_a_schedule_deleted_and_created_again_runs_no_slot_twice_and_counts_are_true(
    seconds, order
):
    async with RunWorld().leader() as world, world.working():
        await a_backfill(world, maxParallel=3, order=order)
        await world.clock.advance(seconds)
        await world.delete()
        await world.apply(schedule=HOURLY)
        await world.clock.advance(30)
        delivered = fired(world)
        assert set(delivered.values()) <= {1}
        planned, started, succeeded, failed, skipped = world.counts()
        assert (planned, failed, skipped) == (SLOTS, 0, 0)
        assert started == succeeded == len(delivered) < SLOTS
        assert told(world) == "ScheduleNotFound"
        assert f"{SLOTS - len(delivered)} never started" in world.run_status()["message"]


@pytest.mark.parametrize("seconds", [0.0, 0.11, 0.5])
@pytest.mark.parametrize("dies_first", [True, False], ids=["leader-first", "schedule-first"])
async def test_a_leader_that_finds_another_schedule_of_the_name_does_not_go_on_with_it(
    seconds, dies_first
):
    """The status is behind, and the occurrences went with the former Schedule."""
    world = RunWorld()
    async with world.working():
        async with world.leader():
            await a_backfill(world, maxParallel=3)
            await world.clock.advance(seconds)
            if not dies_first:
                await world.delete()
        if dies_first:
            await world.delete()
        await world.apply(schedule=HOURLY)
        async with world.leader(epoch=2):
            await world.clock.advance(400)
    delivered = fired(world)
    assert set(delivered.values()) <= {1}
    _, started, succeeded, failed, _ = world.counts()
    assert (started, succeeded, failed) == (len(delivered), len(delivered), 0)
    assert told(world) == "ScheduleNotFound"


async def test_a_run_whose_schedule_is_deleted_with_its_jobs_ends_and_its_time_to_live_counts():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job()
        await world.run_schedule(ttlSecondsAfterFinished=60)
        await world.clock.advance(2)
        assert world.run_status()["active"][0]["jobName"]
        await world.delete()
        await collect_jobs(world)
        await world.clock.advance(10)
        assert told(world) == "ScheduleNotFound"
        assert world.counts() == (1, 1, 0, 0, 0)
        assert "1 had not ended" in world.run_status()["message"]
        await world.clock.advance(60)
        assert world.run_object() is None


async def test_a_run_whose_schedule_and_jobs_went_while_no_operator_ran_ends():
    world = RunWorld()
    async with world.working():
        async with world.leader():
            await a_backfill(world, job=True)
            await world.clock.advance(3)
        await world.delete()
        await collect_jobs(world)
        async with world.leader(epoch=2):
            await world.clock.advance(400)
    assert told(world) == "ScheduleNotFound"
    assert world.counts() == (SLOTS, 4, 0, 4, 0)


async def test_a_slot_that_waits_for_another_run_never_starts_once_its_schedule_is_gone():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(schedule="0 0 1 1 *", concurrencyPolicy="Queue")
        await world.run_schedule("first")
        await world.clock.advance(2)
        await world.run_schedule()
        await world.clock.advance(3)
        await world.delete()
        await world.clock.advance(3)
        assert told(world) == "ScheduleNotFound"
        assert world.counts() == (1, 0, 0, 0, 0)
        assert told(world, "first") == "ScheduleNotFound"
        await collect_jobs(world)
        await world.clock.advance(60)
        assert len(world.jobs()) == 0


async def test_a_run_begins_with_the_first_schedule_of_its_name_and_with_no_other():
    async with RunWorld().leader() as world, world.working():
        await world.run_schedule(
            backfill={"from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00Z"}
        )
        assert world.run_condition("Reconciling")["reason"] == "ScheduleNotFound"
        assert "scheduleUid" not in world.run_status()
        first = await world.apply(schedule="0 0 30 2 *")  # never accepted: nothing begins with it
        await world.clock.advance(2)
        assert "scheduleUid" not in world.run_status()
        await world.delete()
        world.target.hold()
        second = await world.apply(schedule=HOURLY)
        await world.clock.advance(20)
        assert world.run_status()["scheduleUid"] == second["metadata"]["uid"]
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        await world.delete()
        await world.apply(schedule=HOURLY)
        world.target.let_go()
        await world.clock.advance(10)
        assert told(world) == "ScheduleNotFound"
        assert world.run_status()["scheduleUid"] == second["metadata"]["uid"]


async def test_an_edit_that_is_refused_and_mended_loses_no_slot_of_a_backfill():
    async with RunWorld().leader() as world:
        await a_backfill(world)
        await world.clock.advance(2)
        await world.apply(schedule="0 0 30 2 *")  # takes the definition out of the queue
        await world.clock.advance(2)
        await world.apply(schedule=HOURLY)
        await world.clock.advance(2)
        world.runs.request()  # as after each comparison of all objects
        async with world.working():
            await world.clock.advance(60)
        assert world.counts() == (SLOTS, SLOTS, SLOTS, 0, 0)
        assert set(fired(world).values()) == {1}
