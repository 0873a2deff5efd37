"""The bytes of one HTTP/1.1 answer, as they come in -> the answer.

Bodies with a length, in chunks, or up to the end of the connection; interim answers are passed
over. What an API server never sends (compression, upgrades) is not read here. Work is linear in
the bytes, however small the pieces. Whatever is no answer raises NotHttp. Pure.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import NamedTuple

#: Longest head, and longest line between two chunks.
HEAD_LIMIT_BYTES = 64 * 1024
#: Answers before the answer (RFC 9110, 15.2); whoever sends more of them only keeps us busy.
_MOST_INTERIM = 32
_NO_BODY = frozenset({204, 304})
_HEX = frozenset(string.hexdigits.encode())


class NotHttp(OSError):
    """What came is no answer to a request."""


class Answer(NamedTuple):
    """A whole answer; names of headers are in lower case, of one sent twice the last counts.

    ``keeps``: the connection may be used again.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps: bool


class Reading:
    """Of one answer. Feed it what comes, until it gives the answer."""

    def __init__(self) -> None:
        self._status = 0
        self._headers: dict[str, str] = {}
        self._interim = 0
        self._keeps = True
        self._waiting = b""
        self._parts: list[bytes] = []
        #: Bytes to come of the body or its chunk; -1 = up to the end of the connection.
        self._left = 0
        self._in_chunks = self._in_trailers = False

    def feed(self, data: bytes) -> Answer | None:
        """The answer, once it is whole; raises NotHttp."""
        data = self._waiting + data if self._waiting else data
        self._waiting = b""
        if not self._status:
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._wait_for_more(head)
                return None
            self._begin(head)
            if not self._status:  # an interim answer
                return self.feed(data) if data else None
        if self._in_chunks:
            return self._feed_chunks(data)
        return self._feed_body(data)

    def end(self) -> Answer | None:
        """The connection has ended: the answer, where its body lasts until then."""
        return self._whole() if self._status and self._left < 0 else None

    def _begin(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()):
            raise NotHttp(f"no answer to a request: {first[:100]!r}")
        status = int(code)
        if 100 <= status < 200:
            self._interim += 1
            if self._interim > _MOST_INTERIM or status == 101:
                raise NotHttp(f"answered {status}")
            return
        self._status = status
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise NotHttp(f"no header: {line[:100]!r}")
            self._headers[name.lower()] = value.strip()
        self._frame(version)

    def _frame(self, version: str) -> None:
        """Where the body ends (RFC 9112, 6.3)."""
        headers = self._headers
        asked = headers.get("connection", "" if version == "HTTP/1.1" else "close")
        self._keeps = asked.lower() == "keep-alive" or not asked
        if self._status in _NO_BODY:
            return
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked":
                raise NotHttp(f"transfer-encoding {coding[:100]!r}")
            self._in_chunks = True
        elif length is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 16):
                raise NotHttp(f"content-length {length[:100]!r}")
            self._left = int(length)
        else:
            self._left, self._keeps = -1, False

    def _feed_body(self, data: bytes) -> Answer | None:
        if self._left < 0:
            self._parts.append(data)
            return None
        if len(data) < self._left:
            self._parts.append(data)
            self._left -= len(data)
            return None
        if len(data) > self._left:  # more than was asked for: nobody knows what follows
            self._keeps = False
            data = data[: self._left]
        self._parts.append(data)
        return self._whole()

    def _feed_chunks(self, data: bytes) -> Answer | None:
        """Each chunk is its size, a line break, its bytes, and another line break."""
        at = 0
        while True:
            if self._left > 2:
                part = data[at : at + self._left - 2]
                self._parts.append(part)
                at += len(part)
                self._left -= len(part)
            if self._left > 2:
                return None
            if self._left:  # its line break
                if len(data) - at < self._left:
                    self._wait_for_more(data[at:])
                    return None
                if data[at : at + self._left] != b"\r\n":
                    raise NotHttp("a chunk is longer than it said")
                at += self._left
                self._left = 0
            end = data.find(b"\r\n", at)
            if end < 0:
                self._wait_for_more(data[at:])
                return None
            line, at = data[at:end], end + 2
            if self._in_trailers:
                if not line:
                    self._keeps = self._keeps and at == len(data)
                    return self._whole()
                continue
            size = _chunk_size(line)
            self._left = size + 2 if size else 0
            self._in_trailers = not size

    def _wait_for_more(self, kept: bytes) -> None:
        if len(kept) > HEAD_LIMIT_BYTES:
            raise NotHttp("a head or a line without an end")
        self._waiting = kept

    def _whole(self) -> Answer:
        return Answer(self._status, self._headers, b"".join(self._parts), self._keeps)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not 0 < len(digits) < 16 or not _HEX.issuperset(digits):
        raise NotHttp(f"no size of a chunk: {line[:100]!r}")
    return int(digits, 16)
