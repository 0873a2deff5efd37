"""kill -9, SIGTERM, SIGSTOP: nothing is lost, no Job is doubled."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
from urllib.parse import urlsplit

import pytest

from tests.support import proxy
from tests.support.builders import JOB_TEMPLATE
from tests.support.waiting import LONGEST_SECONDS

LEASE_SECONDS = 2.0


def in_seconds(seconds: float) -> str:
    """An ``@at`` so far ahead, on a whole second."""
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
    return f"@at {at.isoformat(timespec='seconds').replace('+00:00', 'Z')}"


def a_job(schedule: str) -> dict:
    return {
        "schedule": schedule,
        "startingDeadlineSeconds": 300,
        "jobTemplate": JOB_TEMPLATE,
    }


def has_run(found: dict) -> bool:
    return found["status"].get("runs", {}).get("succeeded") == 1


def api_of(stack) -> tuple[str, int]:
    parts = urlsplit(stack.plane.server)
    return parts.hostname, parts.port


@pytest.mark.parametrize("gate", ["forward", "backward"])
async def test_a_worker_killed_around_the_job_post_leaves_exactly_one_job(stack, gate):
    """Forward held: killed between claim and fire. Backward held: between fire and settle."""
    operator = stack.operator()
    await operator.wait_until_ready()
    async with proxy.between(*api_of(stack)) as between:
        login = stack.login("worker", f"https://127.0.0.1:{between.port}")
        doomed = stack.worker("doomed", KUBECONFIG=str(login), lease_seconds=str(LEASE_SECONDS))
        await doomed.wait_until_ready()
        # One Job first: its connection stays open, so that only a POST meets the closed gate.
        await stack.apply("warm", a_job(in_seconds(2)))
        await stack.wait_for_schedule("warm", has_run, "run to its end")
        getattr(between, gate).clear()
        await stack.apply("task", a_job(in_seconds(3)))
        await asyncio.wait_for(between.held.wait(), LONGEST_SECONDS)
        if gate == "backward":
            await stack.wait_for_job("task")
        await doomed.kill()
    heir = stack.worker("heir", lease_seconds=str(LEASE_SECONDS))
    await heir.wait_until_ready()
    await stack.wait_for_schedule("task", has_run, "run to its end")
    (job,) = await stack.jobs("task")
    runs = (await stack.schedule("task"))["status"]["runs"]
    assert runs["started"] == 1
    assert job["metadata"]["name"].startswith("task-")


async def test_a_paused_worker_sends_nothing_late_once_its_claim_was_taken_over(stack):
    operator = stack.operator()
    await operator.wait_until_ready()
    async with proxy.between(*api_of(stack)) as between:
        login = stack.login("worker", f"https://127.0.0.1:{between.port}")
        paused = stack.worker("paused", KUBECONFIG=str(login), lease_seconds=str(LEASE_SECONDS))
        await paused.wait_until_ready()
        between.forward.clear()
        await stack.apply("task", a_job(in_seconds(2)))
        await asyncio.wait_for(between.held.wait(), LONGEST_SECONDS)
        paused.send(signal.SIGSTOP)
        heir = stack.worker("heir", lease_seconds=str(LEASE_SECONDS))
        await heir.wait_until_ready()
        await stack.wait_for_job("task")
        paused.send(signal.SIGCONT)
        between.forward.set()
        await stack.wait_for_schedule("task", has_run, "run to its end")
    assert len(await stack.jobs("task")) == 1
