"""A small HTTP server with scripted answers, for cases that a real API server cannot produce."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """A server that answers with ``script`` in turn, the last one for ever; it keeps requests."""

    def __init__(self, *script: Handler) -> None:
        self.script = list(script)
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await handler(request)


@contextlib.asynccontextmanager
async def serving(*script: Handler) -> AsyncIterator[Server]:
    server = Server(*script)
    runner = web.AppRunner(_app(server), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def _app(server: Server) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    return app


def answers(status: int, body: object = None, **headers: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=text, headers=spelled)

    return handler


async def hangs(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def hangs_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def streams(*chunks: bytes, then: Handler | None = None) -> Handler:
    """Return a watch: these chunks, then the stream's end, silence, or a broken connection."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if then is not None:
            await then(request)
        return response

    return handler
