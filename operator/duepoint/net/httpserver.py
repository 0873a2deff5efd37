"""An HTTP/1.1 server for our own API, with bounds on everything that a client can make it hold.

``httptools`` (llhttp, strict) parses. Each connection has one task, which reads a request, has it
answered and writes the answer, one after the other. It reads the connection only when it needs more
of a request, so pipelined requests wait, and a client that leaves an answer unread gets no other.
Malformed HTTP gets one answer and the connection is closed: two lengths, a length beside chunks, an
upgrade, a repeated header of ``_SINGLE``. Trailers are ignored, because a header that a front end
removed from the head must not come in after the body. The server ends what is too slow: handshakes,
heads, bodies, unread answers, idle connections. A connection takes a place before the first byte of
TLS. A full server closes idle connections of the address that has most.

Why not a framework: docs/design/operator.md.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import math
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from email import utils as mailtime
from http import HTTPStatus
from typing import Any, Final, cast

import httptools

from duepoint import shares

Headers = tuple[tuple[str, str], ...]

#: Headers that decide what a request means: if one came twice, two readers could disagree.
_SINGLE: Final = (
    "host",
    "content-length",
    "transfer-encoding",
    "content-type",
    "authorization",
    "expect",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "duepoint-durability",
)
_SWEEP_SECONDS = 0.5
_LINGER_SECONDS = 1.0
#: Most bytes of a connection that wait unread, in the protocol, and of one read.
_UNREAD_BYTES = 32 * 1024
_READ_BYTES = 64 * 1024
#: Most pipelined requests that may wait; a single read may hold thousands.
_MOST_WAITING: Final = 256
_TOO_MANY = "too many connections; try again later"
_REASONS: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class Refused(Exception):
    """What a client sent is not a request: it is not HTTP, too large, too slow, or was cut.

    Attributes:
        status: the status to answer with.
    """

    def __init__(self, status: int, message: str) -> None:
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
    """The body of a request, while it arrives: read it whole, within a bound, or in pieces.

    While a handler takes no piece, the server does not read the connection, so that a faster sender
    waits in its own kernel.

    Args:
        more: reads the connection until a part of the body, or its end, has come; raises Refused.
        length: the Content-Length; 0 = the body comes in chunks, or there is none.
    """

    __slots__ = ("_bytes", "_length", "_more", "_pieces", "is_whole")

    def __init__(self, more: Callable[[], Awaitable[None]], length: int = 0) -> None:
        self._more = more
        self._length = length
        self._pieces: list[bytes] = []
        self._bytes = 0
        self.is_whole = False

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)

    async def read(self, most_bytes: int) -> bytes:
        """Return the whole body; raises Refused if it is longer, or cut."""
        while max(self._bytes, self._length) <= most_bytes:
            if self.is_whole:
                return self._taken()
            await self._more()
        raise Refused(413, f"the body has more than {most_bytes} bytes")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive; raises Refused if the body is cut."""
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
        keep_alive: whether the client wants to use the connection again.
        peer: the address of the connection's other end: a client, or a proxy for many clients.
        start: begins a streamed response.
    """

    method: str
    target: str
    headers: Mapping[str, str]
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


#: Answers a request; None if it has answered with a stream.
Handler = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
#: status, message -> the answer to something that is not a valid request.
Refusal = Callable[[int, str], HttpResponse]


class HttpServer:
    """Serves from ``start`` to ``close``."""

    def __init__(self, handler: Handler, refusal: Refusal, limits: ServerLimits) -> None:
        self.handler = handler
        self.refusal = refusal
        self.limits = limits
        self.connections: set[_Connection] = set()
        self.places = shares.ConnectionPlaces[_Connection](limits.connections)
        self.handshakes = shares.ConnectionPlaces[_Connection](limits.handshakes)
        #: Whether each answer ends its connection, so that clients go elsewhere.
        self.is_draining = False
        self.date = b""
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Accept connections; raises OSError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in {each[0]: each[4] for each in found}.items():
            place = str(address[0]), int(address[1])
            listening = socket.create_server(place, family=family, backlog=1_024)
            listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
            self._listening.append(listening)
            self._accepting.append(loop.create_task(self._accept(listening, tls)))
        self._sweeper = loop.create_task(self._sweep())

    @property
    def port(self) -> int:
        """Return the port that it listens on, for port 0."""
        return int(self._listening[0].getsockname()[1])

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Assign places before the first byte of TLS: a handshake costs more than a request."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError:  # the client has gone away, or there are too many files
                await asyncio.sleep(_SWEEP_SECONDS)
                continue
            peer = str(address[0]) if address else ""
            connection, owner = _Connection(self, peer), shares.owner_of(peer)
            if self.places.enter(owner, connection) and (
                tls is None or self.handshakes.enter(owner, connection)
            ):
                connection.begin(accepted, tls)
            else:
                self.places.leave(connection)
                if tls is None:
                    with contextlib.suppress(OSError):
                        accepted.send(self.encoded(self.refusal(503, _TOO_MANY), is_last=True))
                accepted.close()
            await asyncio.sleep(0)  # a flood of connections must not block other tasks

    async def close(self, grace_seconds: float) -> None:
        """Stop accepting, give requests in flight ``grace_seconds`` to end, then cut the rest."""
        self.is_draining = True
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        for connection in tuple(self.connections):
            if connection.is_idle:
                connection.give_way()
        serving = [each.task for each in self.connections if each.task is not None]
        if serving:
            await asyncio.wait(serving, timeout=grace_seconds)
        for connection in tuple(self.connections):
            connection.give_way()
        await asyncio.gather(*serving, return_exceptions=True)
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _sweep(self) -> None:
        while True:
            self.date = b"Date: %b\r\n" % mailtime.formatdate(usegmt=True).encode()
            now = asyncio.get_running_loop().time()
            for connection in tuple(self.connections):
                if connection.deadline <= now:
                    connection.expire()
            await asyncio.sleep(_SWEEP_SECONDS)

    def encoded(self, response: HttpResponse, *, is_last: bool, has_body: bool = True) -> bytes:
        """Return the bytes of an answer."""
        headers = [*response.headers]
        if is_last:
            headers.append(("Connection", "close"))
        if response.status not in (204, 304):
            headers.append(("Content-Length", str(len(response.body))))
        return self.head(response.status, headers) + (response.body if has_body else b"")

    def head(self, status: int, headers: Iterable[tuple[str, str]]) -> bytes:
        """Return the bytes of an answer's head."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        return b"%b%b%b\r\n" % (_REASONS[status], self.date, lines.encode("latin-1"))


class _Connection:
    """One client's connection; the parser's callbacks begin with ``on_``."""

    def __init__(self, server: HttpServer, peer: str) -> None:
        self._server = server
        self._limits = server.limits
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._too_long = f"the head has more than {server.limits.head_bytes} bytes"
        self._parser = httptools.HttpRequestParser(self)
        self._reader = asyncio.StreamReader(_UNREAD_BYTES)
        self._transport: asyncio.Transport | None = None  # before the end of the handshake
        self._writer: asyncio.StreamWriter = cast("asyncio.StreamWriter", None)
        self.task: asyncio.Task[None] | None = None
        #: Whether the server may close it without losing an answer.
        self.is_idle = True
        #: When the read that is under way must have ended.
        self.deadline = math.inf
        #: Requests whose heads have come; only the body of the last one may be incomplete.
        self._waiting: collections.deque[HttpRequest] = collections.deque()
        self._stream: Stream | None = None
        #: What is wrong with the bytes behind the waiting requests.
        self._refused: Refused | None = None
        #: Of all that came since the end of a head, a piece of a body or the end of a request.
        self._framing_bytes = 0
        self._body: Body | None = None
        self._body_bytes = 0  # since ``_body_seconds`` was last reset
        self._body_seconds = 0.0  # left for the next of them
        self._expects_continue = False  # before it sends the body
        self.on_message_begin()
        self._in_head = False

    # -- the life of a connection ----------------------------------------------------------

    def begin(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Start serving an accepted client, which has a place."""
        self._server.connections.add(self)
        self.task = self._loop.create_task(self._serve(accepted, tls))
        self.task.add_done_callback(functools.partial(self._end, accepted))

    def _end(self, accepted: socket.socket, _: asyncio.Task[None]) -> None:
        """Leave the place; the task may have been cancelled before it began."""
        if self._transport is None:
            accepted.close()
        else:
            self._transport.abort()
        self._server.connections.discard(self)
        self._server.places.leave(self)
        self._server.handshakes.leave(self)

    def give_way(self) -> None:
        """Close at once, to free its place for another connection or because there is none."""
        if self.task is not None:
            self.task.cancel()

    async def _serve(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        limits, server = self._limits, self._server
        protocol = asyncio.StreamReaderProtocol(self._reader)
        extra: dict[str, Any] = {"ssl_handshake_timeout": limits.head_seconds} if tls else {}
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=tls, **extra
            )
            server.handshakes.leave(self)
            self._transport = transport
            self._writer = asyncio.StreamWriter(transport, protocol, self._reader, self._loop)
            seconds = limits.head_seconds
            while await self._has_request(seconds):
                self.is_idle = False
                request = self._waiting.popleft()
                if not await self._answer(request, await server.handler(request)):
                    break
                self.is_idle = not self._waiting
                seconds = limits.idle_seconds
            else:
                if self._refused is not None:
                    refusal = server.refusal(self._refused.status, str(self._refused))
                    await self._send(server.encoded(refusal, is_last=True))
                    await self._linger()
            self._writer.close()
            async with asyncio.timeout(limits.answer_seconds):
                await self._writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            pass  # it has gone away, speaks no TLS, is too slow to read, or has to give way

    async def _has_request(self, seconds: float) -> bool:
        """Wait for a request, whose first byte comes in time; False = none will come."""
        deadline = self._loop.time() + (self._limits.head_seconds if self._in_head else seconds)
        while not self._waiting and self._refused is None:
            was_in_head = self._in_head
            try:
                data = await self._read(deadline)
            except TimeoutError:
                if self._in_head:
                    self._refused = Refused(408, "the request did not come in time")
                return False
            if not data:
                return False
            if not was_in_head:
                self._in_head = True
                deadline = self._loop.time() + self._limits.head_seconds
            self._feed(data)
        return bool(self._waiting)

    async def _answer(self, request: HttpRequest, response: HttpResponse | None) -> bool:
        """Write the answer, unless it was a stream; return whether another request may follow."""
        is_broken = self._refused is not None and not self._waiting
        is_last = (
            self._server.is_draining
            or not (request.body.is_whole and request.keep_alive)
            or is_broken
        )
        stream, self._stream = self._stream, None
        if response is not None:
            has_body = request.method != "HEAD"
            await self._send(self._server.encoded(response, is_last=is_last, has_body=has_body))
        elif stream is None or not stream.is_ended:
            self._writer.transport.abort()  # the client must not take the answer for complete
            return False
        if is_last and not (request.body.is_whole and not is_broken):
            await self._linger()
        return not is_last

    async def _linger(self) -> None:
        """Let the client read the answer before the end, although it may still be sending."""
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
        deadline = self._loop.time() + _LINGER_SECONDS
        with contextlib.suppress(OSError):
            while await self._read(deadline):
                pass

    async def _send(self, data: bytes) -> None:
        """Send bytes; raises ConnectionError if the client has gone away or reads nothing."""
        if self._writer.is_closing():
            raise ConnectionResetError("the client has gone away")
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size():
            try:
                async with asyncio.timeout(self._limits.answer_seconds):
                    await self._writer.drain()
            except TimeoutError:
                self._writer.transport.abort()
                raise ConnectionResetError("the client does not read its answer") from None

    def _start_stream(self, status: int, headers: Headers) -> Stream:
        self._send_continue()  # an interim answer has to precede the final one
        self._writer.write(self._server.head(status, [*headers, ("Transfer-Encoding", "chunked")]))
        self._stream = Stream(self._send)
        return self._stream

    # -- reading ---------------------------------------------------------------------------

    async def _read(self, deadline: float) -> bytes:
        """Return what has come, b"" at the end; raises TimeoutError soon after the deadline."""
        self.deadline = deadline
        try:
            return await self._reader.read(_READ_BYTES)
        finally:
            self.deadline = math.inf

    def expire(self) -> None:
        """End the read that is late. A timer for each read would cost as much as the parser."""
        self._reader.set_exception(TimeoutError())

    async def _more_body(self) -> None:
        """Read on until a part of the last request's body, or its end, has come."""
        self._send_continue()
        began = self._loop.time()
        if self._refused is None:
            try:
                data = await self._read(began + self._body_seconds)
            except TimeoutError:
                raise Refused(408, "the body did not come in time") from None
            except ConnectionError:
                data = b""
            if not data:
                raise Refused(400, "the connection ended")
            self._body_seconds -= self._loop.time() - began
            self._feed(data)
        if self._refused is not None:
            raise self._refused

    def _send_continue(self) -> None:
        """Answer ``Expect: 100-continue``, if the client sent it and the body is not there yet."""
        if self._expects_continue and self._body is not None and not self._waiting:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects_continue = False

    def _feed(self, data: bytes) -> None:
        """Parse data; set ``_refused`` if they are not valid."""
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refused = Refused(400, "the protocol cannot be changed here")
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, Refused):
                cause = Refused(400, "the request is not HTTP/1.1")
            self._refused = cause
        except httptools.HttpParserError as error:
            self._refused = Refused(400, f"the request is not HTTP/1.1: {error}"[:200])
        else:
            most = self._limits.head_bytes
            if self._framing_bytes > most:
                others = f"there are more than {most} bytes between two pieces of the body"
                self._refused = Refused(431, self._too_long if self._in_head else others)

    # -- the parser's callbacks ------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_head = True
        self._url = b""
        self._headers: dict[str, str] = {}
        self._header_count = self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self._limits.url_bytes:
            raise Refused(431, f"the URL is longer than {self._limits.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > self._limits.headers:
            raise Refused(431, f"there are more than {self._limits.headers} headers")
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self._limits.head_bytes:
            raise Refused(431, self._too_long)
        if not self._in_head:
            return  # a trailer field (RFC 9110, 6.5.1)
        key = name.decode("latin-1").lower()
        text, headers = value.decode("latin-1").strip(), self._headers
        former = headers.get(key)
        if former is None:
            headers[key] = text
        elif key in _SINGLE:
            raise Refused(400, f"the header {key} appears twice")
        else:
            headers[key] = f"{former}, {text}"

    def on_headers_complete(self) -> None:
        headers = self._headers
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise Refused(400, f"HTTP/{version} is not supported; send HTTP/1.1")
        is_new = version == "1.1"
        if self._parser.should_upgrade():
            raise Refused(400, "the protocol cannot be changed here")
        if is_new and "host" not in headers:
            raise Refused(400, "the header Host is missing")
        if not is_new and "transfer-encoding" in headers:
            raise Refused(400, "HTTP/1.0 has no transfer coding")
        if len(self._waiting) > _MOST_WAITING:
            raise Refused(400, f"more than {_MOST_WAITING} requests wait on the connection")
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise Refused(400, "the only supported transfer coding is chunked")
        self._in_head, self._framing_bytes = False, 0
        self._body_bytes, self._body_seconds = 0, self._limits.body_seconds
        self._expects_continue = is_new and headers.get("expect", "").lower() == "100-continue"
        self._body = Body(self._more_body, int(headers.get("content-length", 0)))
        self._waiting.append(
            HttpRequest(
                method=self._parser.get_method().decode("latin-1"),
                target=self._url.decode("latin-1"),
                headers=headers,
                body=self._body,
                start=self._start_stream,
                keep_alive=self._parser.should_keep_alive(),
                peer=self._peer,
            )
        )

    def on_body(self, piece: bytes) -> None:
        if self._body is None:
            return
        self._body.feed(piece)
        self._framing_bytes = 0
        self._body_bytes += len(piece)
        if self._body_bytes >= self._limits.body_bytes_each:
            self._body_bytes, self._body_seconds = 0, self._limits.body_seconds

    def on_message_complete(self) -> None:
        self._framing_bytes = 0
        if self._body is not None:
            self._body.is_whole = True
            self._body = None
