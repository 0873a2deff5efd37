"""Redis or the API server away, at start or later: waited for, said, and then caught up."""

from __future__ import annotations

import itertools
from urllib.parse import urlsplit

from tests.support import proxy
from tests.support.builders import JOB_TEMPLATE
from tests.support.stack import eventually


async def test_an_edit_during_an_outage_of_redis_is_reconciling_and_then_ready(stack):
    operator, worker = await stack.running()
    await stack.apply("call", {"schedule": "@every 1s", "webhook": stack.webhook("/old")})
    await stack.apply("quiet", {"schedule": "@every 1h", "webhook": stack.webhook()})
    await stack.wait_until_ready("quiet")
    await stack.wait_for_deliveries(1, "call")
    stack.redis.kill()
    await stack.apply("call", {"schedule": "@every 1s", "webhook": stack.webhook("/new")})
    found = await stack.wait_for_schedule("call", _is_reconciling, "Reconciling is told")
    reasons = {one["type"]: one["reason"] for one in found["status"]["conditions"]}
    assert reasons["Reconciling"] == "QueueUnavailable"
    quiet = await stack.schedule("quiet")
    assert "Reconciling" not in {one["type"] for one in quiet["status"]["conditions"]}
    stack.redis.start()  # empty: everything is rebuilt from the objects
    await stack.wait_until_ready("call", generation=2)
    await operator.wait_until_ready()
    await worker.wait_until_ready()
    seen = len(stack.deliveries)
    deliveries = await stack.wait_for_deliveries(seen + 2)
    assert {one.path for one in deliveries[seen:]} == {"/new"}
    # What had ended within the last interval of statuses may come again, with the same id.
    ids = [one.webhook_id for one in deliveries[seen:]]
    assert len(ids) == len(set(ids))


async def test_an_emptied_redis_comes_back(stack):
    await stack.running()
    spec = {"schedule": "@every 1s", "catchUpPolicy": "All", "webhook": stack.webhook()}
    await stack.apply("call", spec)
    await stack.wait_for_deliveries(2, "call")
    with stack.redis.client() as client:
        client.flushall()
    seen = len(stack.deliveries)
    await stack.wait_for_deliveries(seen + 3, "call")


async def test_the_api_server_away_does_not_stop_webhooks_and_delays_jobs(stack):
    parts = urlsplit(stack.plane.server)
    operator = stack.operator()
    await operator.wait_until_ready()
    async with proxy.between(parts.hostname, parts.port) as between:
        login = stack.login("worker", f"https://127.0.0.1:{between.port}")
        worker = stack.worker(KUBECONFIG=str(login))
        await worker.wait_until_ready()
        await stack.apply("call", {"schedule": "@every 1s", "webhook": stack.webhook()})
        task = {"schedule": "@every 3s", "catchUpPolicy": "All", "jobTemplate": JOB_TEMPLATE}
        await stack.apply("task", task)
        await stack.wait_for_job("task")
        await between.refuse()
        await stack.wait_for_deliveries(len(stack.deliveries) + 4, "call")
        await between.accept()

        async def four_came_and_none_is_left_out() -> bool:
            names = [job["metadata"]["name"] for job in await stack.jobs("task")]
            slots = sorted(int(name.removeprefix("task-")) for name in names)
            return len(slots) >= 4 and {b - a for a, b in itertools.pairwise(slots)} == {3}

        # Those that were delayed are made side by side, in any order.
        await eventually(four_came_and_none_is_left_out, "every slot has its Job")


def _is_reconciling(found) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(one["type"] == "Reconciling" and one["status"] == "True" for one in conditions)
