"""Jobs of Schedules: their ends, their number, their history."""

from __future__ import annotations

from duepoint.controller.jobs import jobstate
from duepoint.controller.jobs.jobstate import OwnedJob
from duepoint.delayqueue import messages
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs
from duepoint.kube.jobs import JobOwner
from duepoint.runs.run import RunState
from duepoint.schedules import points
from duepoint.schedules.rule import Policy
from tests.support.builders import JOB_TEMPLATE, at
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import EPOCH, NAMESPACE, World

S = 1_000_000
FIRST = at("2026-03-01 12:05:00")


async def run_slot(world: World, made, slot_us: int) -> str:
    """A worker creates the slot's Job and tells of it."""
    await world.clock.advance((slot_us - world.clock.now_us()) / S)
    name = await world.create_job(made, slot_us)
    running = event(made, slot_us, RunState.RUNNING, job_name=name)
    await world.tell(made["metadata"]["uid"], running)
    return name


async def test_a_watch_that_is_too_old_lists_again_and_counts_nothing_twice():
    async with World().leader() as world:
        made = await world.apply_job()
        first = await run_slot(world, made, FIRST)
        world.api.end_job(NAMESPACE, first)
        await world.clock.advance(5)
        second = await run_slot(world, made, FIRST + 300 * S)
        await world.api.request("DELETE", jobs.path(NAMESPACE, first))
        world.api.end_job(NAMESPACE, second)
        world.api.compact()
        await world.clock.advance(60)
        assert world.status()["runs"]["succeeded"] == 2


# -- history -----------------------------------------------------------------------------------


def finished(slot: int, *, succeeded: bool = True) -> OwnedJob:
    owner = JobOwner("n", "j", "u")
    return OwnedJob(
        owner=owner, name=f"j-{slot}", uid=f"u-{slot}", slot_us=slot, succeeded=succeeded
    )


def test_the_oldest_beyond_each_limit_go():
    listed = [finished(slot) for slot in (5, 1, 4, 2, 3)]
    listed += [finished(slot, succeeded=False) for slot in (7, 6)]
    policy = Policy(successful_jobs_history_limit=3, failed_jobs_history_limit=1)
    assert [job.slot_us for job in jobstate.too_many(listed, policy)] == [1, 2, 6]


async def test_no_job_is_deleted_before_the_api_server_has_the_watermark():
    async with World().leader() as world:
        made = await world.apply_job(successfulJobsHistoryLimit=0)
        for _ in range(8):
            world.api.fail_next(kube_errors.Unavailable("503"), verb="PATCH")
        name = await run_slot(world, made, FIRST)
        world.api.end_job(NAMESPACE, name)
        await world.clock.advance(3)
        assert len(world.api.all_stored("jobs")) == 1
        await world.clock.advance(300)
        assert world.api.all_stored("jobs") == []


async def test_a_job_stays_until_the_status_tells_how_it_ended():
    """Else who takes over finds it shown as running and gone, and tells of a failure."""
    world = World()
    async with world.leader():
        made = await world.apply_job(successfulJobsHistoryLimit=0)
        name = await run_slot(world, made, FIRST)
        await world.clock.advance(10)
        assert world.status()["activeCount"] == 1
        for _ in range(8):
            world.api.fail_next(kube_errors.Unavailable("503"), verb="PATCH")
        world.api.end_job(NAMESPACE, name)
        await world.clock.advance(3)
    async with world.leader(epoch=2):
        await world.clock.advance(300)
        counts = world.status()["runs"]
        assert (counts["started"], counts["succeeded"], counts["failed"]) == (1, 1, 0)
        assert world.api.all_stored("jobs") == []


async def a_manual_job(world: World, made, slot_us: int) -> str:
    metadata = made["metadata"]
    facts = jobbuilder.SlotFacts(
        namespace=NAMESPACE,
        name=metadata["name"],
        uid=metadata["uid"],
        slot_us=slot_us,
        previous_us=None,
        trigger="Manual",
        time_zone="Etc/UTC",
        run_uid=f"run-{slot_us}",
    )
    await jobs.create(world.api, NAMESPACE, jobbuilder.job_for(JOB_TEMPLATE, facts))
    await world.clock.settle()
    return jobbuilder.job_name(facts)


async def test_a_manual_job_stays_while_the_queue_still_holds_its_slot():
    """Its worker died after the Job was made: whoever takes the slot over must find the Job."""
    async with World().leader() as world:
        made = await world.apply_job(successfulJobsHistoryLimit=0, suspend=True)
        uid = made["metadata"]["uid"]
        await world.clock.advance(60)
        slot_us = world.clock.now_us()
        known = world.definition(uid)
        point = points.DuePoint(
            schedule_id=known.id,
            timing_version=known.timing_version,
            kind=points.PointKind.MANUAL,
            due_us=slot_us,
            slot_us=slot_us,
            run_tag=points.run_tag("run"),
        )
        record = messages.OccurrenceRecord(trigger="Manual", run_uid="run")
        await world.queue.occurrences.enqueue(known, point, record, EPOCH)
        world.api.end_job(NAMESPACE, await a_manual_job(world, made, slot_us))
        await world.clock.advance(60)
        assert len(world.api.all_stored("jobs")) == 1
        await world.queue.occurrences.withdraw(known, point, EPOCH)
        await world.clock.advance(60)
        assert world.api.all_stored("jobs") == []
