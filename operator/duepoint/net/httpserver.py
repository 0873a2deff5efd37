"""An HTTP/1.1 server for our own API, with bounds on everything that a client can make it hold.

``httptools`` (llhttp, strict) parses. A connection has one request in flight. Pipelined requests
wait, and the server soon stops reading them, as it does while the client leaves an answer unread.
Malformed HTTP gets one answer and the connection is closed: two lengths, a length beside chunks, an
upgrade, a repeated header of ``_SINGLE``. Trailers are ignored, because a header that a front end
removed from the head must not come in after the body. A sweep every half second ends whatever is
too slow: handshakes, heads, bodies, unread answers, idle connections. A connection takes a place
before the first byte of TLS. A full server closes idle connections of the address that has most.

Why not a framework: docs/design/operator.md.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from email import utils as mailtime
from http import HTTPStatus
from typing import Any, Final, cast

import httptools

from duepoint import shares
from duepoint.net.requests import (
    Body,
    BodyCut,
    Headers,
    HttpRequest,
    HttpResponse,
    ServerLimits,
    Stream,
)

#: Answers a request; None if it has answered with a stream.
Handler = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
#: status, message -> the answer to something that is not a valid request.
Refusal = Callable[[int, str], HttpResponse]

#: Headers that decide what a request means: if one came twice, two readers could disagree.
_SINGLE: Final = frozenset(
    (
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
)
#: Common headers, by their usual spellings: spares decoding nearly all names that come.
_NAMES: Final = {
    spelling: name
    for name in (
        *_SINGLE,
        *("accept", "accept-encoding", "accept-language", "connection", "user-agent"),
        *("content-encoding", "sec-fetch-site", "origin", "cookie"),
        *("traceparent", "x-forwarded-for", "x-forwarded-proto", "x-request-id"),
    )
    for spelling in (name.encode(), name.title().encode())
}
_SWEEP_SECONDS = 0.5
_LINGER_SECONDS = 1.0
#: Most pipelined requests that may wait; a single read may hold thousands.
_MOST_WAITING: Final = 256
_NEVER = float("inf")
_TOO_MANY = "too many connections; try again later"
_REASONS: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class HttpServer:
    """Serves from ``start`` to ``close``."""

    def __init__(self, handler: Handler, refusal: Refusal, limits: ServerLimits) -> None:
        self.handler = handler
        self.refusal = refusal
        self.limits = limits
        self.connections: set[_Connection] = set()
        self.places: shares.ConnectionPlaces[_Connection] = shares.ConnectionPlaces(
            limits.connections
        )
        self.handshakes: shares.ConnectionPlaces[_Connection] = shares.ConnectionPlaces(
            limits.handshakes
        )
        self.is_draining = False
        self.on_closed = asyncio.Event()
        self.date = b""
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Accept connections; raises OSError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        self._tick()
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
            connection, owner = _Connection(self, loop, peer), shares.owner_of(peer)
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

    async def leave(self, seconds: float) -> None:
        """Serve for ``seconds`` more; each answer ends its connection, so clients go elsewhere."""
        self.is_draining = True
        await asyncio.sleep(seconds)

    async def close(self, grace_seconds: float) -> None:
        """Stop accepting, give requests in flight ``grace_seconds`` to end, then cut the rest."""
        self.is_draining = True
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        for connection in tuple(self.connections):
            connection.close_when_idle()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_closed(), grace_seconds)
        tasks = [task for each in tuple(self.connections) if (task := each.cut()) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _all_closed(self) -> None:
        while self.connections:
            self.on_closed.clear()
            await self.on_closed.wait()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._tick()
            now = loop.time()
            for connection in tuple(self.connections):
                if connection.is_late(now):
                    connection.time_out()

    def encoded(self, response: HttpResponse, *, is_last: bool, has_body: bool = True) -> bytes:
        """Return the bytes of an answer."""
        lines = [f"{name}: {value}\r\n" for name, value in response.headers]
        if is_last:
            lines.append("Connection: close\r\n")
        if response.status not in (204, 304):
            lines.append(f"Content-Length: {len(response.body)}\r\n")
        head = "".join(lines).encode("latin-1")
        body = response.body if has_body else b""
        return b"%b%b%b\r\n%b" % (_REASONS[response.status], self.date, head, body)

    def _tick(self) -> None:
        self.date = b"Date: %b\r\n" % mailtime.formatdate(usegmt=True).encode()


class _Connection(asyncio.Protocol):
    """One client's connection; the parser's callbacks begin with ``on_``."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop, peer: str) -> None:
        self.server = server
        self.limits = server.limits
        self.deadline = _NEVER
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._beginning: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._is_made = False  # the transport, after the handshake
        self._waiting: collections.deque[HttpRequest] = collections.deque()
        self._task: asyncio.Task[None] | None = None
        self._is_paused = self._is_closing = False
        self._drained: asyncio.Future[None] | None = None
        self._answer_deadline = _NEVER  # for an answer that the client leaves unread
        self._in_head = False
        self._begun = 0  # heads that began in the data of this read
        self._head_bytes = 0
        self._body_bytes = 0
        self._framing_bytes = 0  # of chunks and trailers, since the last bytes of the body
        self._is_broken = False
        self._stream: Stream | None = None
        self._peer = peer
        self._begin_head()

    def _begin_head(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._header_count = self._header_bytes = 0
        self._body: Body | None = None

    # -- the transport's callbacks ---------------------------------------------------------

    def begin(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Start serving an accepted client, which has a place."""
        self.server.connections.add(self)
        self._beginning = self._loop.create_task(self._begin(accepted, tls))

    async def _begin(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        extra: dict[str, Any] = {"ssl_handshake_timeout": self.limits.head_seconds} if tls else {}
        try:
            await self._loop.connect_accepted_socket(lambda: self, accepted, ssl=tls, **extra)
        except OSError:
            pass  # the client speaks no TLS, is too slow, or has gone away
        finally:
            self._beginning = None
            self.server.handshakes.leave(self)
            if not self._is_made:
                self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._is_made = cast("asyncio.Transport", transport), True
        self.deadline = self._loop.time() + self.limits.head_seconds
        if self._is_closing:
            self._transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether the server may close it without losing an answer."""
        return self._task is None and not self._is_closing

    def give_way(self) -> None:
        """Close at once, to free its place for another connection or because there is none."""
        self._is_closing = True
        self._abort()

    def _abort(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
        if self._is_made:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.server.connections.discard(self)
        self.server.places.leave(self)
        self.server.handshakes.leave(self)
        self.server.on_closed.set()
        self._is_closing = True
        if self._body is not None:
            self._body.fail(BodyCut("the connection ended"))
        if (waiter := self._drained) is not None and not waiter.done():
            waiter.set_exception(ConnectionResetError("the client has gone away"))
            waiter.exception()  # if nobody awaits it, asyncio must not log it

    def eof_received(self) -> bool:
        """Answer even a client that has closed its sending half."""
        if self._body is not None and not self._body.is_whole:
            self._body.fail(BodyCut("the body was cut"))
        return self._task is not None and self._transport.get_extra_info("sslcontext") is None

    def data_received(self, data: bytes) -> None:
        if self._is_closing or self._is_broken:
            return
        if not self._in_head and self._body is None:
            self._in_head, self._head_bytes = True, 0
            self.deadline = self._loop.time() + self.limits.head_seconds
        if self._in_head:
            self._head_bytes += len(data)
        self._framing_bytes += len(data)
        self._begun = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "the protocol cannot be changed here")
        except httptools.HttpParserCallbackError as error:
            refused = error.__context__
            if isinstance(refused, _Refused):
                self._refuse(refused.status, refused.message)
            else:
                self._refuse(400, "the request is not HTTP/1.1")
        except httptools.HttpParserError as error:
            self._refuse(400, f"the request is not HTTP/1.1: {error}"[:200])
        else:
            if self._in_head and self._head_bytes > self.limits.head_bytes:
                self._refuse(431, self._too_long)
            elif self._body is not None and self._framing_bytes > self.limits.head_bytes:
                what = "between two pieces of the body, or behind it"
                self._refuse(431, f"there are more than {self.limits.head_bytes} bytes {what}")

    @property
    def _too_long(self) -> str:
        return f"the head has more than {self.limits.head_bytes} bytes"

    # -- the parser's callbacks ------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begin_head()
        self._in_head = True
        if self._begun:  # other requests share this read; only the next reads count
            self._head_bytes = 0
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self.limits.url_bytes:
            raise _Refused(431, f"the URL is longer than {self.limits.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > self.limits.headers:
            raise _Refused(431, f"there are more than {self.limits.headers} headers")
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self.limits.head_bytes:
            raise _Refused(431, self._too_long)
        if not self._in_head:
            return  # a trailer field (RFC 9110, 6.5.1)
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        text, headers = value.decode("latin-1").strip(), self._headers
        former = headers.get(key)
        if former is None:
            headers[key] = text
        elif key in _SINGLE:
            raise _Refused(400, f"the header {key} is there twice")
        else:
            headers[key] = f"{former}, {text}"

    def on_headers_complete(self) -> None:
        headers = self._headers
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise _Refused(400, f"HTTP/{version} is not spoken here; send HTTP/1.1")
        is_new = version == "1.1"
        if self._parser.should_upgrade():
            raise _Refused(400, "the protocol cannot be changed here")
        if is_new and "host" not in headers:
            raise _Refused(400, "the header Host is missing")
        if not is_new and "transfer-encoding" in headers:
            raise _Refused(400, "HTTP/1.0 has no transfer coding")
        if len(self._waiting) > _MOST_WAITING:
            raise _Refused(400, f"more than {_MOST_WAITING} requests wait on the connection")
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise _Refused(400, "the only transfer coding known is chunked")
        self._in_head, self._body_bytes, self._framing_bytes = False, 0, 0
        expects = is_new and headers.get("expect", "").lower() == "100-continue"
        body = self._body = Body(self._flow, self._go_on if expects else _nothing)
        self.deadline = self._loop.time() + self.limits.body_seconds
        length = headers.get("content-length")
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            target=self._url.decode("latin-1"),
            headers=headers,
            length=None if length is None else int(length),
            body=body,
            start=self._start_stream,
            keep_alive=self._parser.should_keep_alive(),
            peer=self._peer,
        )
        self._waiting.append(request)
        self._begin_next()

    def on_body(self, piece: bytes) -> None:
        if self._body is None:
            return
        self._body.feed(piece)
        self._framing_bytes = 0
        self._body_bytes += len(piece)
        if self._body_bytes >= self.limits.body_bytes_each:
            self._body_bytes = 0
            self.deadline = self._loop.time() + self.limits.body_seconds

    def on_message_complete(self) -> None:
        if self._body is not None:
            self._body.end()
            self._body = None
        self.deadline = _NEVER
        if len(self._waiting) > 1:
            self._flow(False)  # noqa: FBT003 - the direction

    # -- one request -----------------------------------------------------------------------

    def _begin_next(self) -> None:
        if self._drained is not None or self._is_closing:
            return  # the client has not read the previous answer yet
        if self._task is None and self._waiting:
            self._task = self._loop.create_task(self._serve(self._waiting[0]))

    async def _serve(self, request: HttpRequest) -> None:
        body = request.body
        response = await self.server.handler(request)
        self._task = None
        self._waiting.popleft()
        if self._is_closing:
            return
        whole = body.is_whole
        ends = self.server.is_draining or (self._is_broken and not self._waiting)
        last = ends or not (whole and request.keep_alive)
        if response is not None:
            self._write(response, last=last, has_body=request.method != "HEAD")
        elif self._stream is None or not self._stream.is_ended:
            self._transport.abort()  # the client must not take the answer for complete
            return
        self._stream = None
        if last:
            self._linger(is_read=whole and not self._is_broken)
            return
        if self._drained is None:
            self._rest()

    def _rest(self) -> None:
        """Begin the next waiting request, or wait for one: the answers so far were read."""
        if self._body is not None:
            self.deadline = self._body_deadline()
        else:
            limits = self.limits
            seconds = limits.head_seconds if self._in_head else limits.idle_seconds
            self.deadline = self._loop.time() + seconds
        if len(self._waiting) <= 1:
            self._flow(True)  # noqa: FBT003 - the direction
        self._begin_next()

    def _write(self, response: HttpResponse, *, last: bool, has_body: bool = True) -> None:
        self._transport.write(self.server.encoded(response, is_last=last, has_body=has_body))

    def _start_stream(self, status: int, headers: Headers) -> Stream:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")
        self._waiting[0].body.expect()  # an interim answer has to precede the final one
        self._transport.write(
            b"%b%b%bTransfer-Encoding: chunked\r\n\r\n"
            % (_REASONS[status], self.server.date, lines)
        )
        self._stream = Stream(self._write_piece, self._drain)
        return self._stream

    def _write_piece(self, data: bytes) -> None:
        if self._is_closing:
            raise ConnectionResetError("the client has gone away")
        self._transport.write(data)

    def _drain(self) -> asyncio.Future[None] | None:
        return self._drained

    def _go_on(self) -> None:
        self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # -- back-pressure, and the end --------------------------------------------------------

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        self._answer_deadline = self._loop.time() + self.limits.answer_seconds

    def resume_writing(self) -> None:
        waiter, self._drained = self._drained, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._is_closing:
            return
        if self._task is None:
            self._rest()
        else:
            self.deadline = self._body_deadline()

    def _body_deadline(self) -> float:
        is_awaited = self._body is not None and not self._is_paused
        return self._loop.time() + self.limits.body_seconds if is_awaited else _NEVER

    def _flow(self, on: bool) -> None:  # noqa: FBT001 - the direction
        """Resume or pause reading; while it is paused, data wait in the client's kernel."""
        if self._is_paused is not on or self._is_closing:
            return
        self._is_paused = not on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
        if self._body is not None and self._drained is None:
            self.deadline = self._body_deadline()

    def is_late(self, now: float) -> bool:
        """Whether the client has missed its current deadline."""
        return now >= (self.deadline if self._drained is None else self._answer_deadline)

    def time_out(self) -> None:
        """End the connection or the request of a client that has missed its deadline."""
        if self._is_closing or self._drained is not None:
            self._transport.abort()
        elif self._body is not None and self._task is not None:
            self.deadline = _NEVER
            self._body.fail(BodyCut("the body did not come in time", 408))
        elif self._in_head:
            self._refuse(408, "the request did not come in time")
        else:
            self._transport.close()

    def close_when_idle(self) -> None:
        if not self._is_made:
            self._abort()
        elif self._task is None:
            self._transport.close()

    def cut(self) -> asyncio.Task[None] | None:
        """Close at once; cancel the request's task and return it."""
        self._abort()
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _refuse(self, status: int, message: str) -> None:
        if self._is_closing:
            return
        if self._task is None and not self._waiting:
            self._write(self.server.refusal(status, message), last=True)
            self._linger(is_read=False)
            return
        # Answer the earlier requests first. If a body is bad, its own request's answer says so.
        self._is_broken = True
        self._flow(False)  # noqa: FBT003 - the direction
        if self._body is not None:
            self._body.fail(BodyCut(message, status))

    def _linger(self, *, is_read: bool) -> None:
        """Close in a way that lets the client read the answer, although it may still be sending."""
        self._is_closing = True
        if is_read:
            self._transport.close()
            return
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            if self._transport.can_write_eof():
                self._transport.write_eof()
        if self._is_paused:
            self._transport.resume_reading()
        self.deadline = self._loop.time() + _LINGER_SECONDS


def _nothing() -> None:
    """Do nothing: the client does not expect a 100 Continue."""
