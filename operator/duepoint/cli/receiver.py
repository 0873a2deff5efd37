"""A receiver of webhooks for tests: it answers 204 and reports what arrived.

It checks no signature. It reads the clock before it parses the body, so that its own processing
time does not count as the sender's lateness.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from duepoint import errors

HOST = "127.0.0.1"

#: Called with the description of each request.
OnRequest = Callable[[dict[str, Any]], None]


def _described(arrived: dt.datetime, request: web.Request, body: bytes) -> dict[str, Any]:
    """Return the description of a request; anybody may have sent it."""
    data = _data(body)
    schedule = data.get("schedule")
    if not isinstance(schedule, dict):
        schedule = {}
    return {
        "arrived": arrived,
        "path": request.path,
        "id": request.headers.get("webhook-id", ""),
        "namespace": str(schedule.get("namespace", "")),
        "schedule": str(schedule.get("name", "")),
        "scheduled_time": data.get("scheduled_time", ""),
        "attempt": data.get("attempt", 0),
    }


def _data(body: bytes) -> dict[str, Any]:
    """Return the event's data: ``data`` in the body, or the body itself."""
    try:
        found = json.loads(body)
        data = found.get("data", found)
    except (ValueError, AttributeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def application(on_request: OnRequest) -> web.Application:
    """Return an application that answers every request with 204."""

    async def receive(request: web.Request) -> web.Response:
        arrived = dt.datetime.now(dt.UTC)
        on_request(_described(arrived, request, await request.read()))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receive)
    return app


@contextlib.asynccontextmanager
async def receiving(host: str, port: int, on_request: OnRequest) -> AsyncIterator[None]:
    """Receive on an address; raises errors.InvalidSetting if another program uses the port."""
    runner = web.AppRunner(application(on_request), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            message = f"{host}:{port} cannot be used ({error.strerror}); write another port"
            raise errors.InvalidSetting("--receive", message) from error
        yield
    finally:
        await runner.cleanup()
