"""A bound on what a Kafka broker may have us keep of one answer.

Each answer begins with its length in four bytes. aiokafka reads as many bytes as they say, up to
2 GiB, and has no setting for it; the broker is a tenant's own. ``BoundedFrames`` stands between the
transport and the library's protocol and follows the lengths as the bytes pass. Where one is larger
than any answer that a producer asks for, it aborts the connection before the answer is kept.
"""

from __future__ import annotations

import asyncio
from typing import cast

#: Longest frame. What a producer asks for (topics, brokers, where a record is) takes kilobytes.
MOST_BYTES = 4 << 20
_HEAD_BYTES = 4


class BoundedFrames(asyncio.Protocol):
    """Hands everything on to another protocol, until a frame is too long."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._left = 0  # bytes of the current frame that have not come yet
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``; so are the others."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._has_ended:
            return
        if self._has_long_frame(data):
            self._has_ended = True
            assert self._transport is not None  # noqa: S101 - data come over it
            self._transport.abort()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._has_ended:
            exc = ConnectionAbortedError(f"the server's answer has more than {MOST_BYTES} bytes")
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _has_long_frame(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            if self._left:
                passed = min(self._left, len(data) - at)
                self._left -= passed
                at += passed
                continue
            head = data[at : at + _HEAD_BYTES - len(self._head)]
            self._head += head
            at += len(head)
            if len(self._head) == _HEAD_BYTES:
                self._left = int.from_bytes(self._head, "big")
                self._head = b""
                if self._left > MOST_BYTES:
                    return True
        return False
