"""A connection to a Redis that is not ours: few commands, short replies, and no trust.

The server stands in a Secret of a tenant and may be anything. hiredis parses RESP2, which has no
bound of its own, so the bytes of a reply are counted before they are parsed: a reply has at most
4 KiB, and no other type than XADD, AUTH and SELECT answer with. Anything else ends the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import hiredis

from duepoint.targets import servers

_MOST_BYTES = 4096
#: Simple strings, errors, integers and strings. An array would be allocated by its announced size.
_TYPES = b"+-:$"

Part = bytes | str | int


class ServerError(Exception):
    """The server said no.

    Attributes:
        code: the first word, such as ``WRONGTYPE``.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class Garbled(Exception):
    """The server speaks no RESP, or too much of it."""


class RedisConnection:
    """One connection, for one command at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls, dialler: servers.ServerDialler, host: str, port: int, tls: ssl.SSLContext | None
    ) -> RedisConnection:
        """Connected; raises OSError, ssl.SSLError included."""
        made = await dialler.connect(host, port, tls=tls is not None)
        try:
            reader, writer = await asyncio.open_connection(
                sock=made,
                ssl=tls,
                server_hostname=host if tls is not None else None,
                limit=_MOST_BYTES,
            )
        except BaseException:
            made.close()
            raise
        return cls(reader, writer)

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as is known."""
        return not self._writer.is_closing() and not self._reader.at_eof()

    async def execute(self, *parts: Part) -> bytes:
        """The reply to one command; raises ServerError, Garbled and OSError."""
        self._writer.write(hiredis.pack_command(parts))  # type: ignore[arg-type]  # any length
        await self._writer.drain()
        reply = await self._reply()
        if isinstance(reply, hiredis.ReplyError):
            raise ServerError(str(reply))
        return reply if isinstance(reply, bytes) else str("" if reply is None else reply).encode()

    def close(self) -> None:
        """At once, whatever is still on its way."""
        self._writer.transport.abort()

    async def _reply(self) -> Any:  # noqa: ANN401 - bytes, int, None or a ReplyError
        """One reply, with nothing behind it."""
        received = bytearray()
        while data := await self._reader.read(_MOST_BYTES):
            received += data
            if len(received) > _MOST_BYTES:
                raise Garbled(f"it answered with more than {_MOST_BYTES} bytes")
            if b"\r\n" in received and (reply := _parsed(bytes(received))) is not False:
                return reply
        if received:
            raise Garbled("the connection was closed within an answer")
        raise ConnectionResetError("the connection was closed")


def _parsed(received: bytes) -> Any:  # noqa: ANN401 - False where the reply is not complete
    """Of few bytes, so that parsing them again with the next ones costs nothing."""
    if received[0] not in _TYPES:
        raise Garbled(f"it answered {len(received)} bytes that are no Redis reply")
    announced = received[1 : received.index(b"\r\n")]
    if received[:1] == b"$" and announced.isdigit() and int(announced[:9]) > _MOST_BYTES:
        raise Garbled("it answered with a longer text than any answer to XADD is")
    parser = hiredis.Reader(errors="replace")
    parser.feed(received)
    try:
        reply = parser.gets()
    except hiredis.ProtocolError:
        raise Garbled("what it answered is no Redis reply") from None
    if reply is not False and parser.has_data():
        raise Garbled("it answered with more than one reply")
    return reply
