"""A webhook receiver that notes when each event arrived, and answers 204.

The clock is read as soon as the bytes are there, before anything is parsed, because the time that a
receiver takes is not the sender's lateness. It understands what Duepoint's webhooks send, requests
with a ``Content-Length``, and refuses all else; it is for measuring, not for the open internet.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import cast

import msgspec

from duepoint import errors

_ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
_REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_LONGEST_HEAD = 16 * 1024
_LONGEST_BODY = 256 * 1024

#: The id of a member, and when its event arrived in microseconds since the epoch.
Arrived = Callable[[str, int], None]


class _Member(msgspec.Struct, frozen=True):
    name: str = ""


class _Data(msgspec.Struct, frozen=True):
    schedule: _Member = _Member()


class _Event(msgspec.Struct, frozen=True):
    """Of any format but Raw: ``data`` in the body, or as the body."""

    data: _Data | None = None
    schedule: _Member = _Member()

    @property
    def member(self) -> str:
        return (self.data or self).schedule.name


_decoder = msgspec.json.Decoder(_Event)


class EventConnection(asyncio.Protocol):
    """One apisession."""

    def __init__(self, arrived: Arrived, foreign: Callable[[], None]) -> None:
        self._arrived = arrived
        self._foreign = foreign
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        now_us = time.time_ns() // 1_000
        self._got += data
        while not self._transport.is_closing():
            head, separator, rest = self._got.partition(b"\r\n\r\n")
            if not separator:
                if len(head) > _LONGEST_HEAD:
                    self._refuse()
                return
            length = _length(head)
            if length is None:
                self._refuse()
                return
            if len(rest) < length:
                return
            self._got = rest[length:]
            self._note(rest[:length], now_us)
            self._transport.write(_ANSWER)

    def _note(self, body: bytes, now_us: int) -> None:
        try:
            member = _decoder.decode(body).member
        except msgspec.DecodeError:
            member = ""
        if member:
            self._arrived(member, now_us)
        else:
            self._foreign()

    def _refuse(self) -> None:
        self._transport.write(_REFUSED)
        self._transport.close()


def _length(head: bytes) -> int | None:
    """Of the body; None where it is not said, or too long."""
    found = 0
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            text = value.strip()
            if not text.isdigit() or int(text) > _LONGEST_BODY:
                return None
            found = int(text)
    return found


@contextlib.asynccontextmanager
async def listening(
    host: str, port: int, arrived: Arrived, foreign: Callable[[], None]
) -> AsyncIterator[int]:
    """A receiver for as long as the context lasts; its port.

    Raises:
        errors.InvalidSetting: nothing can listen there.
    """
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: EventConnection(arrived, foreign), host, port
        )
    except OSError as error:
        raise errors.InvalidSetting(
            "--receive", f"nothing can listen on {host}:{port}: {error.strerror or error}"
        ) from None
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
