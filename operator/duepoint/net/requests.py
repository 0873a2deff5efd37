"""Requests and responses of our HTTP server, and request bodies while they arrive.

A handler reads a body whole, within a bound, or in pieces. While it takes no piece, the server does
not read the connection, so that a faster sender waits in its own kernel. The server enforces
``ServerLimits`` before a handler sees the request.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]

#: Bytes of a body that may wait for the handler before the server stops reading the connection:
#: some thousand rows of a stream, which are stored together.
_UNREAD_BYTES = 192 * 1024
#: The same bound before the handler has read anything, when the caller is not authenticated yet.
_EARLY_BYTES = 16 * 1024


class BodyTooLarge(Exception):
    """The body has more bytes than its reader accepts."""


class BodyCut(Exception):
    """The body did not arrive: the connection ended, was too slow, or sent no HTTP.

    Attributes:
        status: the status to answer with; 0 if the client is gone.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds on what clients can make the server hold.

    Attributes:
        url_bytes, head_bytes, headers: most of the target, of the head and of its lines; then 431.
        head_seconds: from the first byte of a request to the end of its head; then 408.
        idle_seconds: between two requests; then the connection is closed.
        body_seconds: time for each ``body_bytes_each`` bytes of a body, or its end; then 408.
        answer_seconds: how long a client may leave an answer unread.
        connections: most at a time, with a share for each address (``shares``); further ones
            get 503.
        handshakes: most TLS handshakes at a time, some 400 KiB each; further ones are closed.
    """

    url_bytes: int = 4_096
    head_bytes: int = 32_768
    headers: int = 100
    head_seconds: float = 10.0
    idle_seconds: float = 75.0
    body_seconds: float = 10.0
    body_bytes_each: int = 1_024
    answer_seconds: float = 30.0
    connections: int = 1_000
    handshakes: int = 100


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response with its whole body; the server adds the length."""

    status: int
    headers: Headers = ()
    body: bytes = b""


class Body:
    """The body of a request, while it arrives."""

    __slots__ = (
        "_bytes", "_ended", "_expects", "_failure", "_flow", "_most_unread", "_pieces", "_waiter",
    )  # fmt: skip

    def __init__(self, flow: Callable[[bool], None], on_first_read: Callable[[], None]) -> None:
        """``flow(False)`` pauses reading from the connection, ``flow(True)`` resumes it."""
        self._flow = flow
        self._expects: Callable[[], None] | None = on_first_read
        self._pieces: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._most_unread = _EARLY_BYTES
        self._ended = False
        self._failure: BodyCut | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the whole body has arrived."""
        return self._ended

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)
        if self._bytes > self._most_unread:
            self._flow(False)  # noqa: FBT003 - the direction
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def fail(self, failure: BodyCut) -> None:
        """Make the reader raise this once it has read what arrived."""
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def read(self, most_bytes: int) -> bytes:
        """Return the whole body; raises BodyTooLarge, BodyCut."""
        if self._ended and self._bytes <= most_bytes:  # nearly every body comes with its head
            self._bytes = 0
            pieces = self._pieces
            return pieces.popleft() if len(pieces) == 1 else self._taken()
        whole = bytearray()
        async for piece in self.pieces():
            whole += piece
            if len(whole) > most_bytes:
                raise BodyTooLarge
        return bytes(whole)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive; raises BodyCut."""
        self._most_unread = _UNREAD_BYTES
        while True:
            if self._pieces:
                piece = self._taken()
                self._bytes = 0
                self._flow(True)  # noqa: FBT003 - the direction
                yield piece
            elif self._ended:
                return
            elif self._failure is not None:
                raise self._failure
            else:
                await self._arrival()

    def expect(self) -> None:
        """Answer ``Expect: 100-continue``, if the client sent it and the body is not there yet."""
        if self._expects is not None and not self._ended:
            self._expects()
        self._expects = None

    def _taken(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken

    async def _arrival(self) -> None:
        self.expect()
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


@dataclass(slots=True, eq=False)
class HttpRequest:
    """One request.

    Attributes:
        target: path and query as they came, printable ASCII.
        headers: names in lower case; the values of repeated headers joined with a comma.
        length: the Content-Length; None = the body comes in chunks, or there is none.
        keep_alive: whether the client wants to use the connection again.
        peer: the address of the connection's other end: a client, or a proxy for many clients.
        start: begins a streamed response.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    length: int | None
    body: Body
    start: Callable[[int, Headers], Stream]
    keep_alive: bool
    peer: str = ""


class Stream:
    """A response in chunks; ``write`` waits while the client does not read."""

    __slots__ = ("_drain", "_write", "is_ended")

    def __init__(
        self, write: Callable[[bytes], None], drain: Callable[[], asyncio.Future[None] | None]
    ) -> None:
        self._write = write
        self._drain = drain
        self.is_ended = False

    async def write(self, data: bytes) -> None:
        """Send a chunk; raises ConnectionError if the client has gone away or reads nothing."""
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data))
            if (waiting := self._drain()) is not None:
                await waiting

    def end(self) -> None:
        """Complete the response; without this the client sees that it was cut."""
        self._write(b"0\r\n\r\n")
        self.is_ended = True
