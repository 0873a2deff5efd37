"""A webhook receiver that does nothing but note the time: one process, one line per request.

The clock is read as soon as the bytes are there, before anything is parsed, because the time that a
receiver takes is not the sender's lateness. Lines go to standard output when it is asked to stop:
arrival in microseconds, then the body. Called with ``close``, it closes each connection after its
answer.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
LAST_ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Sink(asyncio.Protocol):
    """One connection; a request comes as one write of the worker, or in two."""

    def __init__(self, lines: list[tuple[int, bytes]], *, closes: bool) -> None:
        self._lines = lines
        self._closes = closes
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        arrived_us = time.time_ns() // 1000
        self._got += data
        head, separator, body = self._got.partition(b"\r\n\r\n")
        if separator and len(body) >= length(head):
            self._got = b""
            self._transport.write(LAST_ANSWER if self._closes else ANSWER)
            if self._closes:
                self._transport.close()
            self._lines.append((arrived_us, body))


def length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def main() -> None:
    lines: list[tuple[int, bytes]] = []
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(
        lambda: Sink(lines, closes="close" in sys.argv), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    for arrived_us, body in lines:
        sys.stdout.buffer.write(b"%d %s\n" % (arrived_us, body))


if __name__ == "__main__":
    uvloop.run(main())
