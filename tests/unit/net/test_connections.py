"""Requests over kept connections, against a server that does as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from duepoint.net import httpclient

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\n\r\n"
PATIENCE = 60.0

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Lines(httpclient.Pool):
    """To one server."""

    def __init__(self, endpoint: httpclient.Endpoint, most: int) -> None:
        super().__init__(httpclient.connect, keep_seconds=30, most_open=most)
        self.endpoint = endpoint


@contextlib.asynccontextmanager
async def a_server(talk: Talk, *, most: int = 4) -> AsyncIterator[Lines]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    lines = Lines(httpclient.Endpoint(host="127.0.0.1", port=port), most)
    try:
        yield lines
    finally:
        lines.close()
        server.close()


def ask(lines: Lines, *, seconds: float = PATIENCE) -> Awaitable[httpclient.Response]:
    deadline = asyncio.get_running_loop().time() + seconds
    return lines.send(lines.endpoint, REQUEST, deadline=deadline, connect_by=deadline)


async def read_request(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def test_no_more_connections_than_allowed_and_nobody_is_forgotten():
    under_way, most = 0, 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        while True:
            await read_request(reader)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1
            writer.write(OK)

    async with a_server(talk, most=3) as lines:
        answers = await asyncio.gather(*(ask(lines) for _ in range(40)))
        assert {answer.body for answer in answers} == {b"ok"}
        assert most == 3


async def test_a_late_answer_costs_the_connection_and_not_the_next_request():
    begun = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        begun += 1
        is_first = begun == 1
        while True:
            await read_request(reader)
            writer.write(OK)
            if is_first:
                await reader.read(-1)

    async with a_server(talk) as lines:
        await ask(lines)
        with pytest.raises(TimeoutError):
            await ask(lines, seconds=0.05)
        assert (await ask(lines)).body == b"ok"
        assert begun == 2


def after_one_answer_it_hangs_up() -> Talk:
    begun = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        begun += 1
        is_first = begun == 1
        while True:
            await read_request(reader)
            writer.write(OK)
            if is_first:
                await read_request(reader)
                return

    return talk


async def test_a_request_that_may_have_been_read_is_not_repeated():
    async with a_server(after_one_answer_it_hangs_up()) as lines:
        await ask(lines)
        with pytest.raises(httpclient.Cut):
            await ask(lines)
        assert (await ask(lines)).body == b"ok"


@pytest.mark.parametrize("linger", [(0, 0), (1, 0)], ids=["closed", "reset"])
async def test_a_request_that_the_server_did_not_take_is_sent_again(linger: tuple[int, int]):
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)

    async def serve_once() -> socket.socket:
        accepted, _ = await loop.sock_accept(listener)
        await loop.sock_recv(accepted, 1024)
        await loop.sock_sendall(accepted, OK)
        return accepted

    port = listener.getsockname()[1]
    lines = Lines(httpclient.Endpoint(host="127.0.0.1", port=port), 1)
    first, _ = await asyncio.gather(serve_once(), ask(lines))
    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *linger))
    first.close()  # the client writes before it looks at the connection again
    response, second = await asyncio.gather(ask(lines), serve_once())
    assert response.body == b"ok"
    second.close()
    listener.close()
    lines.close()


async def test_after_the_end_nothing_is_sent_and_what_was_is_cut():
    async def talk(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with a_server(talk) as lines:
        hanging = asyncio.ensure_future(ask(lines))
        await asyncio.sleep(0.05)
        lines.close()
        with pytest.raises((httpclient.Cut, httpclient.NotConnected)):
            await hanging
        with pytest.raises(httpclient.NotConnected):
            await ask(lines)
