"""A TCP proxy that can hold what passes, in one direction, or cut it.

Stands between a process and one of its servers. TLS passes through untouched. ``forward`` and
``backward`` are gates: closed, bytes of that direction wait; what was held goes on when the gate
opens. ``refuse`` makes the address one where nobody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """Attributes:
    forward: gate of what clients send.
    backward: gate of what the server answers.
    held: set once something waits at a closed gate.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.forward = asyncio.Event()
        self.backward = asyncio.Event()
        self.held = asyncio.Event()
        self.forward.set()
        self.backward.set()

    async def accept(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Cut every connection and listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            await asyncio.gather(
                self._pump(reader, far_writer, self.forward),
                self._pump(far_reader, writer, self.backward),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            with contextlib.suppress(UnboundLocalError):
                far_writer.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while data := await source.read(65_536):
            if not gate.is_set():
                self.held.set()
                await gate.wait()
            sink.write(data)
            await sink.drain()
        sink.close()


@contextlib.asynccontextmanager
async def between(host: str, port: int) -> AsyncIterator[Proxy]:
    """A proxy to this server."""
    proxy = Proxy(host, port)
    await proxy.accept()
    try:
        yield proxy
    finally:
        proxy.forward.set()
        proxy.backward.set()
        await proxy.refuse()
