"""A TCP server for tests that closes its connections when it ends.

``asyncio.Server.close`` stops listening but leaves accepted connections open: the garbage collector
would find one during some later test, which then fails for it. This server cancels handlers and
cuts connections before it ends. A handler may close its writer itself, or just return.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

#: The turns of the loop from an accepted socket to the first step of its handler.
_TURNS_OF_ACCEPTING = 5


class _Accepted:
    """The accepted connections."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            await self._handler(reader, writer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass  # the peer has gone, or the test is over
        finally:
            del self._open[task]
            writer.close()

    async def end(self) -> None:
        for _ in range(_TURNS_OF_ACCEPTING):
            await asyncio.sleep(0)
        ending = dict(self._open)
        for task, writer in ending.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


@contextlib.asynccontextmanager
async def listening(
    handler: Handler,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Listen within the block and yield the port; 0 = a free one."""
    accepted = _Accepted(handler)
    server = await asyncio.start_server(accepted.serve, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await accepted.end()
