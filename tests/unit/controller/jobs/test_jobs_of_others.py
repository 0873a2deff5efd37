"""Jobs that say that they are a Schedule's and are none of its runs: forged, or made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from duepoint.controller.jobs.jobstate import WatchedJobs
from duepoint.kube import jobbuilder, jobs
from tests.support.builders import JOB_TEMPLATE, at
from tests.unit.controller.jobs.test_jobwatch import run_slot
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")
SECOND = at("2026-03-01 12:10:00")
ELSEWHERE = "elsewhere"
NOTHING: Mapping[str, str] = MappingProxyType({})


async def make(
    world: World,
    schedule,
    slot_us: int | None = SECOND,
    *,
    namespace: str = ELSEWHERE,
    name: str = "",
    owner: Mapping[str, str] = NOTHING,
    annotations: Mapping[str, str] = NOTHING,
) -> str:
    """Somebody makes a Job that names this Schedule as its controller."""
    facts = jobbuilder.SlotFacts(
        namespace=namespace, schedule_name=schedule["metadata"]["name"],
        schedule_uid=schedule["metadata"]["uid"], slot_us=slot_us or SECOND, previous_us=None,
        trigger="Schedule", payload=None, time_zone="Etc/UTC",
    )  # fmt: skip
    job = jobbuilder.job_for(JOB_TEMPLATE, facts)
    metadata = job["metadata"]
    metadata["name"] = name or metadata["name"]
    if slot_us is None:
        del metadata["annotations"][jobbuilder.SCHEDULED_TIME]
    metadata["annotations"] |= annotations
    metadata["ownerReferences"][0] |= dict(owner)
    await world.api.request("POST", jobs.collection(namespace), job)
    await world.clock.settle()
    return metadata["name"]


FORGERIES = {
    "another namespace": {},
    "another name": {"namespace": NAMESPACE, "name": "forged-1", "owner": {"name": "hourly"}},
    "another kind": {"namespace": NAMESPACE, "name": "forged-1", "owner": {"kind": "CronJob"}},
    "another api": {"namespace": NAMESPACE, "name": "forged-1", "owner": {"apiVersion": "x/v1"}},
}


@pytest.fixture(params=FORGERIES.values(), ids=FORGERIES.keys())
def forgery(request):
    return request.param


# -- forged ----------------------------------------------------------------------------------------


async def test_a_uid_alone_forges_no_run(forgery):
    async with World().leader() as world:
        schedule = await world.apply_job()
        own = await run_slot(world, schedule, FIRST)
        await world.clock.advance(5)
        before = world.status()
        name = await make(world, schedule, **forgery)
        await world.clock.advance(5)
        assert world.status() == before
        world.api.end_job(forgery.get("namespace", ELSEWHERE), name, succeeded=False)
        await world.clock.advance(5)
        assert world.status() == before
        assert [one["name"] for one in before["active"]] == [own]
        assert world.news == []


# -- made by hand ----------------------------------------------------------------------------------


# -- what no status can write ------------------------------------------------------------------


async def test_a_bug_with_one_job_does_not_end_the_watch(monkeypatch):
    observe = WatchedJobs.observe

    def fail_for_one(watched, job, *more):
        if job.metadata.name == "odd":
            raise ZeroDivisionError
        return observe(watched, job, *more)

    monkeypatch.setattr(WatchedJobs, "observe", fail_for_one)
    world = World()
    async with world.leader():
        schedule = await world.apply_job()
        await make(world, schedule, namespace=NAMESPACE, name="odd")
        await run_slot(world, schedule, FIRST)
        await world.api.request("DELETE", jobs.path(NAMESPACE, "odd"))
        await world.clock.advance(5)
        assert world.status()["activeCount"] == 1
        await make(world, schedule, namespace=NAMESPACE, name="odd")
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.jobs.listed.is_set()
        assert not [task for task in world.running if task.done()]
        assert world.status()["activeCount"] == 1


# -- texts without a bound ---------------------------------------------------------------------
