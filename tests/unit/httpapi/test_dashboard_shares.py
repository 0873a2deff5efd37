"""Users of the dashboard share the connections to the API server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

from duepoint import clock as clocks
from duepoint.httpapi import access, application, calls
from duepoint.kube import port, transport
from duepoint.net import httpserver


class Sessions:
    """The API server does not answer the first user, and the second one at once."""

    def __init__(self):
        self.connections = asyncio.Semaphore(transport.REQUEST_CONNECTIONS)

    async def of(self, token):
        async def page(path, kind, **_):
            async with self.connections:
                if token == "slow":
                    await asyncio.Event().wait()
                return port.ListPage(metadata=port.ListMetadata())

        return SimpleNamespace(page=page)


class Rights:
    """Everybody is who their token says."""

    async def caller(self, authorization, _peer):
        return access.Caller(access.User(username=authorization.split()[1]))


async def test_one_user_does_not_take_all_connections_to_the_api_server():
    """Another one waited for 14.5 s."""
    queue: Any = MagicMock()
    rights: Any = Rights()
    sessions: Any = Sessions()
    shared = calls.Shared(queue, clocks.SystemClock(), rights, sessions)
    handler = application.Application(shared)

    async def ask(token):
        body = httpserver.Body(AsyncMock())
        body.is_whole = True
        headers = {"authorization": f"Bearer {token}"}
        return await handler(
            httpserver.HttpRequest(
                method="GET", target="/v1/schedules", headers=headers, body=body, start=None,
                keep_alive=True,
            )
        )  # fmt: skip

    held = [asyncio.create_task(ask("slow")) for _ in range(200)]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(30):
        assert (await ask("quick")).status == 200
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)
