"""Jobs that the watch shows more often than once: each run ends once, and its Job is known once."""

from __future__ import annotations

from duepoint.controller.jobs.jobstate import WatchedJobs
from duepoint.kube import jobbuilder, jobs, port, schedules
from tests.support.builders import at
from tests.unit.controller.jobs.test_jobwatch import run_slot
from tests.unit.controller.world import NAMESPACE, World

S = 1_000_000
FIRST = at("2026-03-01 12:05:00")
SECOND = at("2026-03-01 12:10:00")
NOW = at("2026-03-01 13:00:00")
OWNER = jobs.JobOwner(NAMESPACE, "nightly", "u1")
NAME = f"nightly-{FIRST // S}"
COMPLETE = jobs.JobStatus(conditions=(jobs.JobCondition(type="Complete", status="True"),))
CONTROLLED = port.OwnerReference(
    uid="u1",
    name="nightly",
    kind=schedules.KIND,
    api_version=schedules.API_VERSION,
    controller=True,
)


def job(
    uid: str,
    slot: str = "12:05",
    *,
    ended: bool = True,
    deleting: bool = False,
    released: bool = False,
) -> jobs.Job:
    """A Job of a Schedule as the watch shows it."""
    metadata = port.Metadata(
        name=f"nightly-{at(f'2026-03-01 {slot}:00') // S}",
        namespace=NAMESPACE,
        uid=uid,
        creation_timestamp="2026-03-01T12:15:00Z",
        deletion_timestamp="2026-03-01T12:30:00Z" if deleting else None,
        annotations={jobbuilder.SCHEDULED_TIME: f"2026-03-01T{slot}:00Z"},
        owner_references=() if released else (CONTROLLED,),
    )
    return jobs.Job(metadata=metadata, status=COMPLETE if ended else None)


def test_a_finished_job_that_waits_for_its_deletion_ends_its_run_once():
    state = WatchedJobs()
    assert state.observe(job("j1", deleting=True), NOW).ended is not None
    assert state.observe(job("j1", deleting=True), NOW).ended is None
    assert state.finished(OWNER) == ()
    assert state.remove(job("j1", deleting=True), NOW).ended is None


def test_the_name_of_a_job_that_was_deleted_once_it_had_ended_is_free():
    state = WatchedJobs()
    state.observe(job("j1", deleting=True), NOW)
    assert state.has(OWNER, NAME)
    state.remove(job("j1", deleting=True), NOW)
    assert not state.has(OWNER, NAME)


def test_a_finished_job_that_loses_its_owner_while_it_is_deleted_breaks_nothing():
    state = WatchedJobs()
    state.observe(job("j1", deleting=True), NOW)
    state.observe(job("j2", "12:10"), NOW)
    state.remove(job("j2", "12:10"), NOW)
    seen = state.observe(job("j1", deleting=True, released=True), NOW)
    assert (seen.owner, seen.gone) == (OWNER, None)
    assert not state.has(OWNER, NAME)


def test_a_list_that_shows_a_job_made_anew_keeps_its_name():
    state = WatchedJobs()
    state.observe(job("old", ended=False), NOW)
    state.observe(job("new", ended=False), NOW)
    assert state.retain(None, {"new"}) == {OWNER}
    assert state.has(OWNER, NAME)
    assert state.is_active(OWNER, NAME)


def test_a_job_that_has_ended_does_not_run():
    state = WatchedJobs()
    state.observe(job("j1", ended=False), NOW)
    assert state.is_active(OWNER, NAME)
    state.observe(job("j1"), NOW)
    assert not state.is_active(OWNER, NAME)
    assert state.has(OWNER, NAME)


async def test_a_job_that_the_history_deletes_long_after_its_end_is_counted_once():
    async with World().leader() as world:
        made = await world.apply_job(successfulJobsHistoryLimit=70)
        for number in range(75):
            name = await run_slot(world, made, FIRST + number * 300 * S)
            world.api.end_job(NAMESPACE, name)
            await world.clock.advance(5)
        assert len(world.api.all_stored("jobs")) == 70
        assert world.status()["runs"]["succeeded"] == 75
        assert world.status()["runs"]["started"] == 75
