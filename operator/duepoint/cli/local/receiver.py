"""A receiver of webhooks for trying things out: it answers 204 and says what arrived.

It listens on 127.0.0.1 alone and checks no signature; ``duepoint webhook verify`` does.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from aiohttp import web

from duepoint import errors

HOST = "127.0.0.1"

#: Takes the description of a request.
OnRequest = Callable[[dict[str, Any]], None]


def described(
    arrived: dt.datetime, path: str, headers: Mapping[str, str], body: str
) -> dict[str, Any]:
    """What is worth keeping of a request, whether or not the body is ours."""
    lowered = {name.lower(): value for name, value in headers.items()}
    data = _data(body)
    schedule = data.get("schedule")
    if not isinstance(schedule, dict):
        schedule = {}
    return {
        "arrived": arrived.isoformat(),
        "path": path,
        "id": lowered.get("webhook-id", ""),
        "namespace": schedule.get("namespace", ""),
        "schedule": schedule.get("name", ""),
        "scheduled_time": data.get("scheduled_time", ""),
        "attempt": data.get("attempt", 0),
    }


def _data(body: str) -> dict[str, Any]:
    try:
        data = json.loads(body)["data"]
    except (ValueError, TypeError, KeyError):
        return {}
    return data if isinstance(data, dict) else {}


def application(on_request: OnRequest) -> web.Application:
    """Answers every request with 204."""

    async def receive(request: web.Request) -> web.Response:
        arrived = dt.datetime.now(dt.UTC)
        body = (await request.read()).decode(errors="replace")
        on_request(described(arrived, request.path, request.headers, body))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receive)
    return app


@contextlib.asynccontextmanager
async def receiving(port: int, on_request: OnRequest) -> AsyncIterator[None]:
    """Receive on a port; raises errors.InvalidSetting where another program has it."""
    runner = web.AppRunner(application(on_request), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except OSError as error:
            message = f"{HOST}:{port} cannot be used ({error.strerror}); write another port"
            raise errors.InvalidSetting("--receive", message) from error
        yield
    finally:
        await runner.cleanup()
