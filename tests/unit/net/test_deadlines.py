"""Deadlines of requests that follow one another on a connection, in virtual time.

One timer serves the connection: each request has its own deadline all the same, exactly.
"""

from __future__ import annotations

import asyncio

import pytest

from duepoint.net import http1
from tests.unit.election import virtualtime

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Server(asyncio.Transport):
    """Answers so many seconds after it was asked; None = never."""

    def __init__(self, connection: http1.Connection, *waits: float | None) -> None:
        super().__init__()
        self._connection = connection
        self._waits = list(waits)
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert bytes(data) == b"request"
        wait = self._waits.pop(0)
        if wait is not None:
            self._loop.call_later(wait, self._connection.data_received, ANSWER)

    def abort(self) -> None:
        self._connection.connection_lost(None)


async def lasted(connection: http1.Connection, seconds: float) -> tuple[int, float]:
    """The status, 0 after the deadline, and how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        status = (await connection.send(b"request", deadline=began + seconds)).status
    except TimeoutError:
        status = 0
    return status, loop.time() - began


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((30, 1), (10, None), id="sooner than the one before"),
        pytest.param((10, 1), (30, None), id="later than the one before"),
        pytest.param((10, 1), (30, 15), id="answered after the one before would have ended"),
        pytest.param((10, 1), (9, None), id="at the same instant"),
    ],
)
def test_each_request_of_a_connection_ends_at_its_own_deadline(first, second):
    async def scene() -> None:
        connection = http1.Connection()
        connection.connection_made(Server(connection, first[1], second[1]))
        assert await lasted(connection, first[0]) == (204, first[1])
        answered = second[1] is not None
        expected = (204, second[1]) if answered else (0, second[0])
        assert await lasted(connection, second[0]) == expected

    virtualtime.run(scene())
