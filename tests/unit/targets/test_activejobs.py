"""What a policy asks an API server about Jobs, and how seldom."""

from __future__ import annotations

import pytest

from duepoint.kube import jobbuilder, jobs, port
from duepoint.targets.jobtarget import ActiveJobs, JobState
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support.builders import JOB_TEMPLATE

NAMESPACE = "default"
SLOT_US = 1_772_366_400_000_000


async def make(api: FakeKubernetes, schedule: str, slot: int = 0) -> str:
    facts = jobbuilder.SlotFacts(
        namespace=NAMESPACE, schedule_name=schedule, schedule_uid=f"uid-of-{schedule}",
        slot_us=SLOT_US + slot * 1_000_000, previous_us=None, trigger="Schedule", payload=None,
        time_zone="Etc/UTC",
    )  # fmt: skip
    await jobs.create(api, NAMESPACE, jobbuilder.job_for(JOB_TEMPLATE, facts))
    return jobbuilder.job_name(facts)


@pytest.fixture
def api():
    return FakeKubernetes()


async def test_a_job_s_state_is_active_over_or_absent(api):
    running, ended, foreign = [await make(api, n) for n in ("report", "other", "third")]
    api.end_job(NAMESPACE, ended)
    asked = ActiveJobs(api)
    assert await asked.states(NAMESPACE, "report", "uid-of-report", [running, "gone-1"]) == {
        running: JobState.ACTIVE, "gone-1": JobState.ABSENT,
    }  # fmt: skip
    assert await asked.states(NAMESPACE, "other", "uid-of-other", [ended]) == {ended: JobState.OVER}
    assert await asked.states(NAMESPACE, "report", "uid-of-report", [foreign]) == {
        foreign: JobState.ABSENT
    }


async def test_only_a_running_job_of_the_schedule_is_deleted(api):
    running, ended = await make(api, "report"), await make(api, "report", 1)
    foreign = await make(api, "other")
    api.end_job(NAMESPACE, ended)
    for name in (running, ended, foreign, "gone-1"):
        await ActiveJobs(api).delete(NAMESPACE, "report", "uid-of-report", name)
    left = {job["metadata"]["name"] for job in api.all_stored("jobs")}
    assert left == {ended, foreign}


async def _forge(api: FakeKubernetes, name: str, *, owner: str = "", slot: bool = True) -> None:
    """Somebody writes the metadata of this Job."""
    metadata = api.stored("jobs", NAMESPACE, name)["metadata"]
    if owner:
        metadata["ownerReferences"][0]["name"] = owner
    kept = {"ownerReferences": metadata["ownerReferences"]}
    if not slot:
        kept["annotations"] = {jobbuilder.SCHEDULED_TIME: None}
    path = jobs.path(NAMESPACE, name)
    await api.request("PATCH", path, {"metadata": kept}, content_type=port.MERGE_PATCH)


@pytest.mark.parametrize("forged", [{"owner": "other"}, {"slot": False}], ids=["name", "no slot"])
async def test_a_uid_alone_makes_no_job_a_run_that_is_active_or_may_be_deleted(api, forged):
    name = await make(api, "report")
    await _forge(api, name, **forged)
    asked = ActiveJobs(api)
    place = NAMESPACE, "report", "uid-of-report"
    assert await asked.of_schedule(*place) == ()
    assert await asked.states(*place, [name]) == {name: JobState.ABSENT}
    await asked.delete(*place, name)
    assert api.stored("jobs", NAMESPACE, name) is not None
