"""NEXT, LAST, ACTIVE and READY keep up on real processes, whatever a slot waits for."""

from __future__ import annotations

import asyncio
import time

from duepoint.controller.status import writer
from duepoint.kube import errors as kube_errors
from tests.e2e.test_firing import slot_us
from tests.e2e.test_jobs import condition, endless, runs, template
from tests.support import receiver
from tests.support import stack as stacks
from tools.devcluster import ports

#: What a busy machine may add to the status interval.
_SLACK_SECONDS = 6.0
_MOST_SECONDS = writer.STEADY_SECONDS + _SLACK_SECONDS
_QUOTAS = "/api/v1/namespaces/{ns}/resourcequotas"


async def oldest_next(stack, name: str, seconds: float) -> float:
    """By how many seconds NEXT was past at most, over a while."""
    oldest, until = 0.0, time.monotonic() + seconds
    while time.monotonic() < until:
        asked = time.time()  # how long the answer takes is no matter of the status
        status = (await stack.schedule(name))["status"]
        if "nextScheduleTime" in status:
            oldest = max(oldest, asked - slot_us(status["nextScheduleTime"]) / 1e6)
        adds_up(status)
        await asyncio.sleep(0.2)
    return oldest


def adds_up(status: dict) -> None:
    counts = status.get("runs", {})
    ended = counts.get("succeeded", 0) + counts.get("failed", 0) + counts.get("replaced", 0)
    assert counts.get("started", 0) == ended + status.get("activeCount", 0), status


async def test_next_is_not_past_behind_a_hung_job_under_queue(stack):
    await stack.running()
    spec = {"schedule": "@every 7s", "concurrencyPolicy": "Queue", "jobTemplate": endless()}
    await stack.apply("hung", spec)
    await stack.wait_for_job("hung")
    assert await oldest_next(stack, "hung", 24) < _MOST_SECONDS


async def test_next_and_last_keep_up_while_a_request_is_open(stack):
    await stack.running()
    answered = asyncio.Event()

    async def late(request, writer) -> None:
        await answered.wait()
        await receiver.status(204)(request, writer)

    stack.answer = late
    await stack.apply("call", {"schedule": "@every 20s", "webhook": stack.webhook()})
    (delivery,) = await stack.wait_for_deliveries(1, "call")
    watching = asyncio.create_task(oldest_next(stack, "call", 12))
    found = await stack.wait_for_schedule("call", lambda f: "activeCount" in f["status"], "active")
    assert time.time() - delivery.arrived_us / 1e6 < 2 * writer.STALENESS_SECONDS + _SLACK_SECONDS
    assert slot_us(found["status"]["lastScheduleTime"]) == slot_us(delivery.slot)
    assert found["status"]["active"][0]["fieldPath"].startswith("slots[")
    assert await watching < _MOST_SECONDS
    answered.set()
    found = await stack.wait_for_schedule("call", lambda f: "active" not in f["status"], "ended")
    assert runs(found)["succeeded"] == 1


async def test_next_is_not_past_behind_a_receiver_that_nobody_reaches(stack):
    await stack.running()
    webhook = {"url": f"http://127.0.0.1:{ports.any_free()}/gone"}
    await stack.apply("gone", {"schedule": "@every 9s", "webhook": webhook})
    await stack.wait_for_schedule("gone", lambda f: runs(f).get("started", 0) >= 1, "tried")
    assert await oldest_next(stack, "gone", 20) < _MOST_SECONDS
    assert condition(await stack.schedule("gone"), "Ready")["status"] == "True"


async def test_active_falls_soon_after_the_last_job_has_ended(stack):
    await stack.running()
    spec = {"schedule": "@every 1s", "maxRuns": 12, "jobTemplate": template(seconds=1.5)}
    await stack.apply("burst", {**spec, "successfulJobsHistoryLimit": 20})
    found = await stack.wait_for_schedule(
        "burst", lambda f: runs(f).get("succeeded") == 12 and "active" not in f["status"], "ended"
    )
    seen = time.time()
    ends = [job["status"]["completionTime"] for job in await stack.jobs("burst")]
    assert seen - max(map(slot_us, ends)) / 1e6 < _MOST_SECONDS + 1  # ends are in whole seconds
    adds_up(found["status"])


async def test_a_job_that_was_created_ends_the_wait_for_a_dry_run(stack):
    """A quota kept the verdict away; it is gone, and the first Job shows it."""
    quotas = _QUOTAS.format(ns=stack.namespace)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    none = {"spec": {"hard": {"count/jobs.batch": "0"}}}
    await stack.api.request("POST", quotas, {**quota, **none})
    await wait_until_refused(stack)
    await stack.running()
    await stack.apply("kept", {"schedule": "@every 2s", "jobTemplate": template()})
    await stack.wait_for_schedule(
        "kept", lambda f: condition(f, "Ready").get("reason") == "DryRunPending", "pending"
    )
    await asyncio.sleep(12)  # by now the dry run is repeated ever less often
    await stack.api.request("DELETE", f"{quotas}/none")
    await stack.wait_for_job("kept")
    created = time.time()
    await stack.wait_until_ready("kept")
    assert time.time() - created < _MOST_SECONDS


async def wait_until_refused(stack) -> None:
    """No Job can be created: the API server's admission sees a quota later than its readers do."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "probe"}, **template()}

    async def refused() -> bool:
        try:
            await stack.api.request(
                "POST", stacks.JOBS.format(ns=stack.namespace), job, query={"dryRun": "All"}
            )
        except kube_errors.Forbidden:
            return True
        return False

    await stacks.eventually(refused, "the quota refuses a Job")
