"""Connections of a test end with its loop (``tests/support/loops.py``)."""

from __future__ import annotations

import asyncio
import socket

import pytest


@pytest.mark.parametrize("is_closing", [False, True], ids=["open", "closing"])
def test_a_connection_is_gone_with_its_loop(is_closing):
    """One that the collector finds later fails some other test."""
    loop = asyncio.new_event_loop()
    accepted: asyncio.Future[asyncio.Transport] = loop.create_future()

    class Keeping(asyncio.Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:
            accepted.set_result(transport)

    async def connect() -> tuple[asyncio.Transport, asyncio.Transport]:
        server = await loop.create_server(Keeping, "127.0.0.1", 0)
        ours, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        server.close()
        return ours, await accepted

    ends = loop.run_until_complete(connect())
    if is_closing:
        for end in ends:
            end.abort()
    loop.close()
    assert [end._sock for end in ends] == [None, None]


def test_a_connection_with_unsent_bytes_is_gone_too():
    """Closing waits for a peer that reads nothing."""
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
        transport.write(bytes(8 << 20))
        transport.close()
        loop.close()
    assert transport._sock is None


def test_a_connection_that_is_accepted_at_the_end_is_gone_too():
    loop = asyncio.new_event_loop()
    accepted: list[asyncio.BaseTransport] = []

    class Keeping(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    server = loop.run_until_complete(loop.create_server(Keeping, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    with socket.create_connection(address):
        while not accepted:
            loop.run_until_complete(asyncio.sleep(0))
        with socket.create_connection(address):
            loop.close()
    assert [end._sock for end in accepted] == [None, None]
    server.close()
