"""A TCP proxy that can delay bytes in either direction, or cut connections.

It sits between a process and one of its servers. TLS passes through untouched. ``forward`` and
``backward`` are gates: while one is closed, bytes in that direction wait. With a TLS context of its
own the proxy terminates TLS and passes on the plain text. With a port for ``handshakes``, a
connection that begins as a TLS handshake goes there untouched. After ``refuse`` nobody listens at
the address; with a ``refusal`` the proxy answers each Redis command with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import hiredis

from tests.support import listeners

_HANDSHAKE = b"\x16"  # the type of the first TLS record


class Proxy:
    """Attributes:
    forward: the gate for bytes from clients.
    backward: the gate for bytes from the server.
    held: set once bytes wait at a closed gate.
    connections: connections accepted so far.
    refusal: the answer to each Redis command on new connections, in place of the server's; empty =
        ask the server.
    tells_ends: whether the server learns that a client has gone; if not, it goes on with the
        client's requests, as behind a cut network.
    """

    def __init__(
        self,
        target: str,
        target_port: int,
        *,
        at: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        target_tls: ssl.SSLContext | None = None,
        handshakes: int | None = None,
    ) -> None:
        self._target = (target, target_port)
        self._at = at
        self._tls = tls
        self._target_tls = target_tls
        self._handshakes = handshakes
        self._listening = contextlib.AsyncExitStack()
        self.port = port
        self.connections = 0
        self.tells_ends = True
        self.refusal = b""
        self.forward = asyncio.Event()
        self.backward = asyncio.Event()
        self.held = asyncio.Event()
        self.forward.set()
        self.backward.set()

    async def accept(self) -> None:
        """Listen, on the same port as before."""
        self.port = await self._listening.enter_async_context(
            listeners.listening(self._serve, self._at, self.port, tls=self._tls)
        )

    async def refuse(self) -> None:
        """Cut every connection and stop listening."""
        await self._listening.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusal:
            await self._say_no(reader, writer)
            return
        first = b"" if self._handshakes is None else await reader.read(65_536)
        host, port = self._target
        if first.startswith(_HANDSHAKE):
            port = self._handshakes or port
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port, ssl=self._target_tls)
        except OSError:
            writer.transport.abort()
            return
        far_writer.write(first)
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, self.forward),
                self._pump(far_reader, writer, self.backward),
            )
        finally:
            writer.transport.abort()
            far_writer.transport.abort()

    async def _say_no(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while data := await reader.read(65_536):
            commands.feed(data)
            while commands.gets() is not False:
                writer.write(self.refusal)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while data := await source.read(65_536):
            if not gate.is_set():
                self.held.set()
                await gate.wait()
            sink.write(data)
            await sink.drain()
        if self.tells_ends or gate is self.backward:
            sink.close()


@contextlib.asynccontextmanager
async def between(host: str, port: int, *, at: str = "127.0.0.1") -> AsyncIterator[Proxy]:
    """Yield a proxy to this server that listens at this address."""
    proxy = Proxy(host, port, at=at)
    await proxy.accept()
    try:
        yield proxy
    finally:
        proxy.forward.set()
        proxy.backward.set()
        await proxy.refuse()
