"""Concurrency policies on the real servers: two workers, real Jobs, and what goes wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
import time

from tests.e2e.test_crashes import LEASE_SECONDS, api_of, in_seconds
from tests.e2e.test_jobs import (
    runs,
    template,
)
from tests.support import proxy
from tests.support import stack as stacks
from tests.support.waiting import LONGEST_SECONDS


async def two_workers(stack):
    operator = stack.operator()
    workers = [stack.worker(name, lease_seconds=str(LEASE_SECONDS)) for name in ("one", "two")]
    for process in (operator, *workers):
        await process.wait_until_ready()
    return operator, workers


def seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def is_over(job: dict) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)


def slot(job: dict) -> int:
    return int(job["metadata"]["name"].rpartition("-")[2])


def overlaps(jobs: list[dict], most: int = 1) -> list[tuple[str, str]]:
    """Jobs that were made before the one ``most`` places earlier had ended."""
    inorder = sorted(jobs, key=slot)
    return [
        (one["metadata"]["name"], other["metadata"]["name"])
        for one, other in zip(inorder, inorder[most:], strict=False)
        if not is_over(one)
        or seconds(other["metadata"]["creationTimestamp"])
        < seconds(one["status"]["completionTime"])
    ]


async def wait_until_over(stack, name: str, count: int) -> list[dict]:
    async def ended() -> bool:
        return sum(map(is_over, await stack.jobs(name))) >= count

    await stacks.eventually(ended, f"{count} ends of {name}")
    return await stack.jobs(name)


async def test_forbidden_slots_are_skipped_and_nothing_that_is_lost_holds_them_up(stack):
    """The operator is killed, Redis is emptied, a worker is killed: one Job at a time, and on."""
    operator, (one, _) = await two_workers(stack)
    spec = {
        "schedule": "@every 1s",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": template(seconds=1),
        "successfulJobsHistoryLimit": 50,
    }
    await stack.apply("alone", spec)
    await wait_until_over(stack, "alone", 2)

    def has_both(found):
        return min(runs(found).get(what, 0) for what in ("skipped", "started")) >= 2

    await stack.wait_for_schedule("alone", has_both, "skipped slots beside started ones")
    await operator.kill()  # nobody leads: Jobs are looked at by the workers
    await wait_until_over(stack, "alone", 3)
    await one.kill()
    await wait_until_over(stack, "alone", 4)
    successor = stack.operator("successor")
    await successor.wait_until_ready()
    with stack.redis.client() as client:
        client.flushall()
    jobs = await wait_until_over(stack, "alone", 6)
    assert overlaps([job for job in jobs if is_over(job)]) == []


async def test_a_worker_killed_between_the_entry_and_the_post_blocks_nobody(stack):
    operator = stack.operator()
    await operator.wait_until_ready()
    async with proxy.between(*api_of(stack)) as between:
        login = stack.login("worker", f"https://127.0.0.1:{between.port}")
        doomed = stack.worker("doomed", KUBECONFIG=str(login), lease_seconds=str(LEASE_SECONDS))
        await doomed.wait_until_ready()
        spec = {"concurrencyPolicy": "Forbid", "jobTemplate": template()}
        spec["successfulJobsHistoryLimit"] = 50
        await stack.apply("warm", {"schedule": in_seconds(2), **spec})
        await stack.wait_for_job("warm")
        await stack.apply("task", {"schedule": "@every 4s", **spec})
        await stack.wait_until_ready("task")
        between.forward.clear()
        await asyncio.wait_for(between.held.wait(), LONGEST_SECONDS)
        await doomed.kill()
    killed = time.time()
    heir = stack.worker("heir", lease_seconds=str(LEASE_SECONDS))
    await heir.wait_until_ready()
    first, second, *_ = sorted(await wait_until_over(stack, "task", 2), key=slot)
    assert slot(first) <= killed, "the slot of the killed worker was left out"
    waited = slot(second) - seconds(first["status"]["completionTime"])
    assert waited <= 2 * 4, "the first Job had ended, and slots were still skipped"
