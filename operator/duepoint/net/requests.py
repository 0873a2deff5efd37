"""Requests and responses of our HTTP server, and request bodies while they arrive.

A handler reads a body whole, within a bound, or in pieces. While it takes no piece, the server does
not read the connection, so that a faster sender waits in its own kernel. The server enforces
``ServerLimits`` before a handler sees the request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]


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
    """The body of a request, while it arrives.

    Args:
        more: reads the connection until a part of the body, or its end, has come; raises BodyCut.
    """

    __slots__ = ("_bytes", "_more", "_pieces", "is_whole")

    def __init__(self, more: Callable[[], Awaitable[None]]) -> None:
        self._more = more
        self._pieces: list[bytes] = []
        self._bytes = 0
        self.is_whole = False

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)

    async def read(self, most_bytes: int) -> bytes:
        """Return the whole body; raises BodyTooLarge, BodyCut."""
        while self._bytes <= most_bytes:
            if self.is_whole:
                return self._taken()
            await self._more()
        raise BodyTooLarge

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive; raises BodyCut."""
        while True:
            if self._pieces:
                yield self._taken()
            elif self.is_whole:
                return
            else:
                await self._more()

    def _taken(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self._bytes = 0
        return taken


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

    __slots__ = ("_send", "is_ended")

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self.is_ended = False

    async def write(self, data: bytes) -> None:
        """Send a chunk; raises ConnectionError if the client has gone away or reads nothing."""
        if data:
            await self._send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Complete the response; without this the client sees that it was cut."""
        await self._send(b"0\r\n\r\n")
        self.is_ended = True
