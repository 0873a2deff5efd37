"""Users of the dashboard share the connections to the API server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from duepoint import clock as clocks
from duepoint.httpapi import access, calls, operations
from duepoint.httpapi.dashboard import dashboard
from duepoint.kube import port, transport


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


async def test_one_user_does_not_take_all_connections_to_the_api_server():
    """Another one waited for 14.5 s."""
    pages = dashboard.Dashboard(None, Sessions(), None, clocks.SystemClock())

    async def ask(token):
        headers = {"authorization": f"Bearer {token}"}
        request = SimpleNamespace(headers=headers)
        call = calls.OperationCall(request, "1", "", "", "", {})
        (operation,) = (one for one in operations.PAGES if one.name == "listSchedules")
        return await pages.answer(operation, call, access.Caller(access.User(username=token)))

    held = [asyncio.create_task(ask("slow")) for _ in range(200)]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(30):
        assert (await ask("quick")).status == 200
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)
