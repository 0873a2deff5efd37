"""A webhook receiver in this process that can misbehave in every way that HTTP leaves room for.

It sends raw bytes, not a library's HTTP, so that it can cut, drip, lie and babble. It records each
request; a function of the request makes the answer, `status(204)` by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.support import listeners


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Behaviour = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def status(
    code: int, body: bytes = b"", headers: tuple[tuple[str, str], ...] = (), reason: str = "So"
) -> Behaviour:
    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} {reason}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return answer


def raw(data: bytes, *, then_close: bool = True) -> Behaviour:
    """Send these bytes, whatever they are."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if then_close:
            writer.close()

    return answer


async def hang(_: Request, writer: asyncio.StreamWriter) -> None:
    """Send nothing until the client gives up."""
    await _gone(writer)


def repeated(head: bytes, piece: bytes, *, pause_seconds: float = 0.0) -> Behaviour:
    """Send a head, then the same piece for ever."""

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_seconds)

    return answer


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """Use the first behaviour for the first request, and so on; the last for all others."""
    left = list(behaviours)

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        behaviour = left.pop(0) if len(left) > 1 else left[0]
        await behaviour(request, writer)

    return answer


class Receiver:
    """Attributes:
    connections: connections accepted so far.
    requests: complete requests, in order of arrival.
    """

    def __init__(self, answer: Behaviour) -> None:
        self.answer = answer
        self.connections = 0
        self.requests: list[Request] = []
        self.port = 0
        self._arrived = asyncio.Condition()

    async def wait_until_asked(self, count: int = 1) -> None:
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while not writer.is_closing():
            request = await _read(reader)
            async with self._arrived:
                self.requests.append(request)
                self._arrived.notify_all()
            await self.answer(request, writer)


@contextlib.asynccontextmanager
async def listening(
    answer: Behaviour | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer or status(204))
    async with listeners.listening(receiver.serve, host, port, tls=tls) as receiver.port:
        yield receiver


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")[:-2]
    method, target, _ = first.split(" ", 2)
    headers = tuple((name, value.strip()) for name, _, value in (ln.partition(":") for ln in lines))
    lengths = [int(value) for name, value in headers if name.lower() == "content-length"]
    body = await reader.readexactly(lengths[0]) if lengths else b""
    return Request(method=method, target=target, headers=headers, body=body)


async def _gone(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
