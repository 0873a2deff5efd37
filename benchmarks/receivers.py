"""A receiver of webhooks, as a process of its own, that records the time of each request.

``python -m benchmarks.receivers [KIND]`` prints its port and runs until it is terminated. Kinds:

- ``notes``: answers, and at the end prints the arrival in microseconds and the body of each;
- ``closes``: the same, but closes each connection after its answer;
- ``answers``: answers and notes nothing, so that only the sender is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import cast

import uvloop

from benchmarks.scene import Child
from tests.support.stack import Delivery

_ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
_LAST_ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Receiver:
    """The receiver's process, as its benchmark sees it."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.port = int(child.first_line)

    async def stop(self) -> list[Delivery]:
        """End it and return everything that arrived."""
        lines = (line.partition(b" ") for line in (await self._child.terminate()).splitlines())
        return [
            Delivery(arrived_us=int(at), path="/", webhook_id="", body=json.loads(body))
            for at, _, body in lines
        ]


@contextlib.asynccontextmanager
async def started(kind: str = "notes") -> AsyncIterator[Receiver]:
    child = await Child.start("benchmarks.receivers", kind)
    try:
        yield Receiver(child)
    finally:
        await child.terminate()


class _Connection(asyncio.Protocol):
    """A connection of a worker; a request may arrive in parts."""

    def __init__(self, lines: list[tuple[int, bytes]], kind: str) -> None:
        self._lines = lines
        self._kind = kind
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        arrived_us = time.time_ns() // 1000  # before parsing, which is not the sender's lateness
        self._got += data
        head, separator, body = self._got.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            return
        self._got = b""
        self._transport.write(_LAST_ANSWER if self._kind == "closes" else _ANSWER)
        if self._kind == "closes":
            self._transport.close()
        if self._kind != "answers":
            self._lines.append((arrived_us, body))


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def _main(kind: str) -> None:
    lines: list[tuple[int, bytes]] = []
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(
        lambda: _Connection(lines, kind), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    for arrived_us, body in lines:
        sys.stdout.buffer.write(b"%d %s\n" % (arrived_us, body))


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
