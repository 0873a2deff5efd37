"""A receiver that answers 204 as fast as one process can, or never: a process of its own.

`python -m benchmarks.webhooks.server [hangs]` prints its port and runs until it is terminated.
Nothing is noted, so that what is measured is the sender.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from typing import cast

import uvloop

from benchmarks import sink


class Answering(asyncio.Protocol):
    """One connection; a request comes as one write or in parts."""

    answer = sink.ANSWER

    def __init__(self) -> None:
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, separator, body = self._got.partition(b"\r\n\r\n")
        if separator and len(body) >= sink.length(head):
            self._got = b""
            self._transport.write(self.answer)


class Hanging(Answering):
    """Takes everything and says nothing."""

    answer = b""


@contextlib.asynccontextmanager
async def serving(*words: str, module: str = "benchmarks.webhooks.server") -> AsyncIterator[int]:
    """The port of such a process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        process.terminate()
        await process.wait()


class Notes:
    """A process of ``benchmarks.sink``; ``stop`` gives what it noted: arrival in us, and body."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self._process = process

    async def stop(self) -> list[tuple[int, bytes]]:
        self._process.terminate()
        said, _ = await self._process.communicate()
        lines = (line.partition(b" ") for line in said.splitlines())
        return [(int(arrived_us), body) for arrived_us, _, body in lines]


@contextlib.asynccontextmanager
async def noting() -> AsyncIterator[Notes]:
    """A receiver that answers and notes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.sink", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield Notes(process, int(await process.stdout.readline()))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def main() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    kind = Hanging if "hangs" in sys.argv else Answering
    server = await loop.create_server(kind, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(main())
