"""A connection to a Redis that is not ours: few commands, short answers, and no trust.

The server stands in somebody's Secret and may be anything. So every answer is read within bounds:
one line of at most 4 KiB, or a text of at most as much; whatever else comes ends the connection.
RESP2 (https://redis.io/docs/latest/develop/reference/protocol-spec/); a library's parser would take
a reply of any size.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from duepoint.targets import servers

_MOST_BYTES = 4096

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


class Connection:
    """One connection, for one command at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls, dialler: servers.ServerDialler, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Connection:
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
        """Whether nobody has hung up yet, as far as is known."""
        return not self._writer.is_closing() and not self._reader.at_eof()

    async def ask(self, *parts: Part) -> bytes:
        """The answer to one command; raises ServerError, Garbled and OSError."""
        self._writer.write(_packed(parts))
        await self._writer.drain()
        return await self._answer()

    def close(self) -> None:
        """At once, whatever is still on its way."""
        self._writer.transport.abort()

    async def _answer(self) -> bytes:
        line = await self._line()
        kind, rest = line[:1], line[1:]
        if kind in {b"+", b":"}:
            return rest
        if kind == b"-":
            raise ServerError(rest.decode(errors="replace"))
        if kind == b"$":
            return await self._text(rest)
        raise Garbled(f"it answered {len(line)} bytes that are no Redis reply")

    async def _text(self, length: bytes) -> bytes:
        if length == b"-1":
            return b""
        if not length.isdigit() or int(length[:9]) > _MOST_BYTES:
            raise Garbled("it answered with a longer text than any answer to XADD is")
        try:
            whole = await self._reader.readexactly(int(length) + 2)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the connection was closed within an answer") from None
        return whole[:-2]

    async def _line(self) -> bytes:
        try:
            return (await self._reader.readuntil(b"\r\n"))[:-2]
        except asyncio.IncompleteReadError as cut:
            if cut.partial:
                raise Garbled("the connection was closed within an answer") from None
            raise ConnectionResetError("the connection was closed") from None
        except asyncio.LimitOverrunError:
            raise Garbled("it answered with a longer line than Redis does") from None


def _packed(parts: Sequence[Part]) -> bytes:
    out = [b"*%d\r\n" % len(parts)]
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)
