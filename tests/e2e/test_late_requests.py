"""A request for a Job that a real API server gets long after the worker has given it up."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from tests.e2e.test_crashes import in_seconds
from tests.e2e.test_jobs import jobs_path, template, wait_for_event
from tests.support import proxy
from tests.support.stack import eventually


async def test_a_job_stays_for_a_request_that_got_no_answer_and_is_told_of_when_it_comes(stack):
    parts = urlsplit(stack.plane.server)
    async with proxy.between(parts.hostname, parts.port) as between:
        between.tells_ends = False
        through = stack.login("worker", f"https://127.0.0.1:{between.port}")
        operator, worker = stack.operator(), stack.worker(KUBECONFIG=str(through))
        await operator.wait_until_ready()
        await worker.wait_until_ready()
        common = {"jobTemplate": template(), "successfulJobsHistoryLimit": 0}
        holding = between.forward
        holding.clear()  # from here on the worker asks for nothing but its Job
        await stack.apply("late", common | {"schedule": in_seconds(4)})
        await asyncio.wait_for(between.held.wait(), 60)
        between.forward = asyncio.Event()  # of connections that are made from now on
        between.forward.set()
        (first,) = await stack.wait_for_job("late")
        await _wait_for_success(stack, "late")
        await stack.apply("prompt", common | {"schedule": in_seconds(2)})
        await _wait_for_success(stack, "prompt")

        async def prompt_is_gone() -> bool:
            return not await stack.jobs("prompt")

        await eventually(prompt_is_gone, "history deletes a Job whose creation was answered")
        assert [one["metadata"]["uid"] for one in await stack.jobs("late")] == [
            first["metadata"]["uid"]
        ]
        name = first["metadata"]["name"]
        await stack.api.request(
            "DELETE", jobs_path(stack, name), {"propagationPolicy": "Background"}
        )

        async def late_is_gone() -> bool:
            return not await stack.jobs("late")

        await eventually(late_is_gone, "the Job is deleted by hand")
        holding.set()
        (again,) = await stack.wait_for_job("late")
        assert again["metadata"]["name"] == name
        assert again["metadata"]["uid"] != first["metadata"]["uid"]
        told = await wait_for_event(stack, "late", "JobMadeAgain")
        assert (told["type"], told["related"]["name"]) == ("Warning", name)


async def _wait_for_success(stack, name):
    await stack.wait_for_schedule(
        name, lambda found: found["status"].get("runs", {}).get("succeeded") == 1, "its success"
    )
