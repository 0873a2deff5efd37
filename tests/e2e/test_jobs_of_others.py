"""Jobs that name a Schedule as their controller and are none of its runs, on a real API server."""

from __future__ import annotations

import asyncio
import copy

from duepoint.kube import jobbuilder, port
from tests.e2e.test_firing import slot_us
from tests.e2e.test_jobs import condition, endless, runs
from tests.support import stack as stacks
from tests.support.builders import JOB_TEMPLATE

SLOT = "2026-11-22T01:30:00Z"


async def forge(
    stack,
    namespace: str,
    name: str,
    schedule: dict,
    *,
    slot: str = SLOT,
    template: dict = JOB_TEMPLATE,
    held: bool = False,
    owned: bool = True,
    suspended: bool = False,
) -> str:
    """What a user who may create Jobs there writes; its path."""
    metadata = schedule["metadata"]
    job = {
        "metadata": {
            "name": name,
            "labels": {jobbuilder.SCHEDULE_LABEL: metadata["name"]},
            "annotations": {jobbuilder.SCHEDULED_TIME: slot} if slot else {},
            "ownerReferences": [
                {
                    "apiVersion": schedule["apiVersion"],
                    "kind": schedule["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": copy.deepcopy(template["spec"]),
    }
    if held:
        job["metadata"]["finalizers"] = ["example.com/hold"]
    if not owned:
        del job["metadata"]["ownerReferences"]
    if suspended:
        job["spec"]["suspend"] = True
    path = stacks.JOBS.format(ns=namespace)
    await stack.api.request("POST", path, job)
    return f"{path}/{name}"


async def test_whoever_knows_a_uid_forges_no_run_and_holds_no_slot_up(stack):
    """The operator watches both namespaces and may delete Jobs in both.

    Kubernetes collects what has no owner in its namespace; a finalizer keeps it there, shown as
    running and as ended.
    """
    other = stack.plane.create_namespace("e2e-other")
    forged: list[str] = []
    try:
        await asyncio.to_thread(stack.install_roles_for, other)
        watched = f"{stack.namespace},{other}"
        operator = stack.operator(watch_namespaces=watched)
        worker = stack.worker(watch_namespaces=watched)
        for process in (operator, worker):
            await process.wait_until_ready()
        spec = {
            "schedule": "@every 2s",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": JOB_TEMPLATE,
            "maxRuns": 3,
        }
        await stack.apply("victim", {**spec, "suspend": True})
        victim = await stack.wait_until_ready("victim")
        for number, template in enumerate((JOB_TEMPLATE, endless(), endless())):
            name = f"victim-{number}"
            forged.append(await forge(stack, other, name, victim, template=template, held=True))
        await stack.apply("victim", spec)
        found = await stack.wait_for_schedule(
            "victim", lambda f: runs(f).get("succeeded", 0) >= 3, "its own runs"
        )
        assert "active" not in found["status"]
        counts = runs(found)
        assert (counts["started"], counts["succeeded"], counts["failed"]) == (3, 3, 0)
        own = {job["metadata"]["name"] for job in await stack.jobs("victim")}
        assert found["status"]["lastRun"]["jobName"] in own
        for path in forged:
            await stack.api.request("GET", path)  # it is there all the time
    finally:
        for path in forged:
            patch = {"metadata": {"finalizers": None}}
            await stack.api.request("PATCH", path, patch, content_type=port.MERGE_PATCH)
        stack.plane.discard_namespace(other)


async def test_a_job_of_ours_that_lost_its_slot_is_not_called_another_s(stack):
    await stack.running()
    spec = {"schedule": "@every 4s", "jobTemplate": endless()}
    await stack.apply("bare", {**spec, "suspend": True})
    schedule = await stack.wait_until_ready("bare")
    await stack.apply("bare", spec)
    found = await stack.wait_until_ready("bare", 2)
    # The next slot may be too near for the Job to be there before it; the third one is not.
    following_us = slot_us(found["status"]["nextScheduleTime"]) + 8_000_000
    name = jobbuilder.name_of("bare", following_us)
    await forge(stack, stack.namespace, name, schedule, slot="")
    found = await stack.wait_for_schedule(
        "bare", lambda f: bool(condition(f, "NameConflict")), "the conflict"
    )
    said = condition(found, "NameConflict")["message"]
    assert "controlled by" not in said
    assert f"its annotation {jobbuilder.SCHEDULED_TIME} is missing" in said
