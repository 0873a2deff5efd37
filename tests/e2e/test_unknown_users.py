"""Processes as containers start them: a user without a name, and no environment of a developer."""

from __future__ import annotations

from tests.support import anyuser
from tests.support.stack import Stack


@anyuser.needed
async def test_a_user_without_a_name_and_a_home_fires_schedules(stack: Stack) -> None:
    prefix = anyuser.prefix("KUBECONFIG")
    operator, worker = stack.operator(prefix=prefix), stack.worker(prefix=prefix)
    api = stack.http_api(prefix=prefix)
    await stack.apply("plain", {"schedule": "@every 1s", "webhook": stack.webhook()})

    await stack.wait_until_ready("plain")
    await stack.wait_for_deliveries(1, "plain")
    for process in (operator, worker, api):
        await process.wait_until_ready()
        assert await process.drain() == 0, process.log.read_text()
