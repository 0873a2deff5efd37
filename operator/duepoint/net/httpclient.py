"""An HTTP/1.1 client: a pool of keep-alive connections by endpoint.

``httptools`` (llhttp) parses bodies with a length, in chunks, or up to the end of the connection.
Interim responses (RFC 9110, 15.2) are skipped. A connection serves one request at a time. It may be
reused only after a response that ended properly and with nothing after it: trailing or unsolicited
data, a cut, a timeout and a cancellation close it. Heads are bounded, bodies by ``BodyRule``. There
are no redirects, cookies, compression or uploads, because neither webhooks nor an API server need
them.

Idle connections are kept for a while and then closed; the one used last serves next. A server may
close an idle connection just before the pool uses it. So a request over a kept connection is sent
over a new one if its server has acknowledged no byte of it. A request that may have been read is
not repeated. ``Open`` decides which servers may be connected to. If the number of open connections
is limited, further requests wait in order.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import httptools

from duepoint import faults
from duepoint.faults import FaultPoint
from duepoint.net import egressrules

CONNECT_SECONDS = 5.0

#: Longest head, interim responses included, and longest header lines of a response.
HEAD_LIMIT_BYTES = 64 * 1024
#: Bytes that a header line counts beside its text, so that very many short ones are too long.
_LINE_BYTES = 256
#: Most bytes that may arrive for each byte of the body's limit: a one-byte chunk adds five bytes.
#: Without a bound, chunk extensions and trailers would keep us busy until the deadline.
_MOST_FRAMING = 8

_SWITCHING_PROTOCOLS = 101
_FRAMED_BY = ("content-length", "transfer-encoding")
#: Linux's ``struct tcp_info`` (linux/tcp.h) from ``tcpi_bytes_acked`` to ``tcpi_bytes_retrans``:
#: bytes acked, not sent yet, sent, and sent again.
_TCP_INFO = struct.Struct("=120x Q 16x I 52x Q Q")
#: Most idle connections of a pool; further ones are closed after their answer.
_MOST_IDLE = 1024


class NotHttp(OSError):
    """The server sent something that is not an HTTP response."""


class TooLarge(OSError):
    """The body has more bytes than the caller accepts."""


class Cut(ConnectionError):
    """The connection ended before the response did."""


class NotConnected(OSError):
    """No connection was made, so nothing has left this process; the cause says why."""


class ConnectionLate(NotConnected):
    """No connection was made in time."""


@dataclass(frozen=True, slots=True)
class BodyRule:
    """How much of a body to read.

    Attributes:
        most_bytes: the limit; None = no limit.
        is_optional: whether the head alone is enough. Then a body that is too long, cut, late or
            malformed is truncated there and the connection is closed. Otherwise each of these is
            an error.
    """

    most_bytes: int | None = None
    is_optional: bool = False


WHOLE = BodyRule()


class Response(NamedTuple):
    """A response; header names are in lower case, and the last of repeated headers counts.

    ``keep_alive``: whether the connection may be used again.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool


def request_head(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return request line and headers that several requests may share, encoded.

    Raises:
        ValueError: a part contains a line break or a null.
    """
    return _encoded([f"{method} {target} HTTP/1.1"], headers)


def request_bytes(head: bytes, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
    """Return the bytes of a request, with its own headers and Content-Length; raises ValueError.

    Args:
        body: None = no body.
    """
    if body is not None:
        headers = [*headers, ("Content-Length", str(len(body)))]
    return b"%b%b\r\n%b" % (head, _encoded([], headers), body or b"")


def _encoded(lines: list[str], headers: Iterable[tuple[str, str]]) -> bytes:
    """Return lines with CRLF after each; raises ValueError if one contains a line break."""
    lines += [f"{name}: {value}" for name, value in headers]
    text = "\r\n".join([*lines, ""])
    breaks = len(lines)
    if text.count("\r") != breaks or text.count("\n") != breaks or "\0" in text:
        raise ValueError("a line break or a null in a header or the URL")
    return text.encode()


class ResponseParser:
    """Parses one response: feed it the bytes that arrive until it returns the response."""

    def __init__(self, rule: BodyRule = WHOLE) -> None:
        self._rule = rule
        #: Made when the first bytes come: it refers to us, a cycle until the response is complete.
        self._parser: httptools.HttpResponseParser | None = None
        self._is_over = False
        self._status = 0
        self._bytes = 0  # all that has come, framing included
        self._body_bytes = 0
        self._header_bytes = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._is_in_body = False
        self._response: Response | None = None

    def feed(self, data: bytes) -> Response | None:
        """Parse more data; return the response once it is complete.

        Raises:
            NotHttp: the data are not a response, or come after a complete one.
            TooLarge: the body is longer than the rule allows and not optional.
        """
        if self._is_over:
            raise NotHttp("the server sent more than a response")
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._response is None and not self._truncate():
                raise NotHttp(f"no response to a request: {error}: {data[:100]!r}") from error
            self._refuse_reuse()
        if self._response is None:
            self._check_bounds(len(data))
        return self._released()

    def partial(self) -> Response | None:
        """Return the response read so far, if its head is complete and its body optional."""
        self._truncate()
        return self._released()

    def _truncate(self) -> bool:
        """End the response here, if its head is complete and its body optional; return whether."""
        if self._is_in_body and self._rule.is_optional:
            self._response = self._made(keep_alive=False)
        return self._response is not None

    def end(self) -> Response | None:
        """Return the response at the end of the connection, if that is where its body ends."""
        if self._is_in_body and not any(name in self._headers for name in _FRAMED_BY):
            return self._made(keep_alive=False)
        return self.partial()

    def _check_bounds(self, size: int) -> None:
        self._bytes += size
        if not self._is_in_body:
            if self._bytes > HEAD_LIMIT_BYTES:
                raise NotHttp("the head is too long")
            return
        most = self._rule.most_bytes
        if most is None:
            return
        is_long = self._body_bytes > most or self._bytes > _MOST_FRAMING * most + HEAD_LIMIT_BYTES
        if is_long and not self._truncate():
            raise TooLarge(f"a response of more than {most} bytes")

    def _made(self, *, keep_alive: bool) -> Response:
        body = b"".join(self._parts)
        if self._rule.is_optional and self._rule.most_bytes is not None:
            body = body[: self._rule.most_bytes]
        return Response(self._status, self._headers, body, keep_alive)

    def _released(self) -> Response | None:
        """Return the response and break the reference cycle between the parser and this object.

        It may hold megabytes, and garbage collections are rare in a process of many objects.
        """
        response = self._response
        if response is not None:
            self._parser = self._response = None
            self._is_over = True
            self._parts = []
            self._is_in_body = False
        return response

    def _refuse_reuse(self) -> None:
        """Do not reuse the connection: the server sent more than one response."""
        if self._response is not None:
            self._response = self._response._replace(keep_alive=False)

    # -- what the parser calls -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Note that an interim response, the response, or something after it begins."""
        self._refuse_reuse()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header of the head; headers of the trailer after the chunks are ignored."""
        if self._is_in_body or self._response is not None:
            return
        self._header_bytes += len(name) + len(value) + _LINE_BYTES
        if self._header_bytes > HEAD_LIMIT_BYTES:
            raise NotHttp("the head is too long")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """Note whether a body follows: not after an interim response."""
        if self._response is None and self._parser is not None:
            self._status = self._parser.get_status_code()
            is_switch = self._status == _SWITCHING_PROTOCOLS and self._rule.is_optional
            self._is_in_body = self._status >= 200 or is_switch

    def on_body(self, part: bytes) -> None:
        """Store a piece of the body."""
        if self._is_in_body:
            self._parts.append(part)
            self._body_bytes += len(part)

    def on_message_complete(self) -> None:
        """Complete the response, or skip an interim one."""
        if self._response is not None:
            return
        if not self._is_in_body:
            self._headers.clear()
            return
        self._is_in_body = False
        keep_alive = self._parser is not None and self._parser.should_keep_alive()
        self._response = self._made(keep_alive=keep_alive)


class Connection(asyncio.Protocol):
    """One connection, for one request at a time.

    Attributes:
        was_taken: whether a byte of the last request may have reached the server before it closed
            the connection. False only if its kernel has acknowledged none that can be read.
        idle_since: when the pool put the connection aside, by the loop's clock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._pending: asyncio.Future[Response] | None = None
        self.was_taken = True
        self._sent_before = self._request_bytes = 0
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection, as far as we know."""
        return self._transport is not None and not self._transport.is_closing()

    async def send(self, request: bytes, *, deadline: float, rule: BodyRule = WHOLE) -> Response:
        """Send a request and return its response; ``deadline`` is on the loop's clock.

        Raises:
            Cut, NotHttp, TooLarge, TimeoutError: there was none. ``abort`` the connection then.
        """
        if self._transport is None:
            raise Cut("the connection was closed")
        self._sent_before += self._request_bytes
        self._request_bytes, self.was_taken = len(request), True
        self._parser = ResponseParser(rule)
        self._pending = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._expire)
        try:
            self._transport.write(request)
            return await self._pending
        finally:
            timer.cancel()
            self._pending = None

    def abort(self) -> None:
        """Close at once and drop what was not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the transport calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._pending is None or self._pending.done():  # unsolicited data
            self.abort()
            return
        try:
            response = self._parser.feed(data)
        except (NotHttp, TooLarge) as error:
            self._pending.set_exception(error)
            return
        if response is not None:
            self._pending.set_result(response)

    def eof_received(self) -> None:
        self._note_taken()

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_taken()
        self._transport = None
        response = self._parser.end() if exc is None else self._parser.partial()
        self._settle(response, Cut(f"the connection was cut{f': {exc}' if exc else ''}"))

    def _note_taken(self) -> None:
        if self.was_taken and self._transport is not None:
            acknowledged, outstanding = _progress(self._transport)
            # Encrypted it is longer by less than a record, and a part of a record cannot be read.
            was_left = outstanding >= self._request_bytes
            # Without TLS: the server reset the connection before we could write.
            was_late = acknowledged == self._sent_before
            self.was_taken = not (was_left or was_late)

    def _expire(self) -> None:
        self._settle(self._parser.partial(), TimeoutError())

    def _settle(self, response: Response | None, error: Exception) -> None:
        """End the request with the response, or with the error if there is none."""
        if self._pending is None or self._pending.done():
            return
        if response is not None:
            self._pending.set_result(response)
        else:
            self._pending.set_exception(error)


def _progress(transport: asyncio.Transport) -> tuple[int, int]:
    """Return how many bytes the peer's kernel has acknowledged, and how many it has not.

    Both are -1 if our kernel does not tell.
    """
    connected = transport.get_extra_info("socket")
    if connected is None or not hasattr(socket, "TCP_INFO"):
        return -1, -1
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        acked, not_sent, sent, again = _TCP_INFO.unpack(info)
    except (OSError, struct.error):
        return -1, -1
    acknowledged = int(acked) - 1  # without our SYN
    return acknowledged, int(not_sent + sent - again) - acknowledged


# -- the pool --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to connect, and how to verify that it is the right server.

    Calls share connections if their endpoints compare equal. So calls with different names to
    verify, or with different TLS contexts, never share one.

    Attributes:
        tls: None for plain TCP.
        server_name: the name to verify, if it is not the host.
        route: facts for the egress rules.
        namespace: the namespace whose share of look-ups the call uses.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    route: egressrules.Route | None = field(default=None, compare=False)
    namespace: str = field(default="", compare=False)

    @property
    def tls_name(self) -> str | None:
        """Return the name to verify in the server's certificate; None without TLS."""
        return None if self.tls is None else (self.server_name or self.host).rstrip(".")


#: Opens a connection: the guarded dialler's, or ``connect``; raises OSError and ValueError.
Open = Callable[[Endpoint], Awaitable[Connection]]


async def connect(endpoint: Endpoint) -> Connection:
    """Connect to a server that the operator of the installation named, such as the API server."""
    _, made = await asyncio.get_running_loop().create_connection(
        Connection,
        endpoint.host,
        endpoint.port,
        ssl=endpoint.tls,
        server_hostname=endpoint.tls_name,
    )
    return made


class Pool:
    """The connections of one event loop.

    Args:
        keep_seconds: how long a connection may stay idle.
        most_open: most requests in flight; None = the pool sets no limit.
    """

    def __init__(self, open_: Open, *, keep_seconds: float, most_open: int | None = None) -> None:
        self._open_new = open_
        self._keep_seconds = keep_seconds
        self._turns = None if most_open is None else asyncio.Semaphore(most_open)
        #: The one used last at the end.
        self._idle: dict[Endpoint, list[Connection]] = {}
        self._idle_count = 0
        self._busy: set[Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def send(
        self,
        endpoint: Endpoint,
        request: bytes,
        *,
        deadline: float,
        connect_by: float,
        rule: BodyRule = WHOLE,
        may_send: Callable[[], bool] | None = None,
    ) -> Response:
        """Send a request and return its response; instants are on the loop's clock.

        Args:
            connect_by: when there must be a connection.
            may_send: called once there is a connection; if it returns False, nothing is sent.

        Raises:
            NotConnected: nothing was sent.
            TimeoutError, OSError: see ``Connection.send``.
        """
        if self._is_closed:
            raise NotConnected("the connections are closed")
        if self._turns is not None:
            await self._take_turn(self._turns, connect_by)
        try:
            kept = self._take_idle(endpoint, asyncio.get_running_loop().time())
            while True:
                connection = kept or await self._open(endpoint, connect_by)
                if may_send is not None and not may_send():
                    self._put_idle(endpoint, connection)
                    raise ConnectionLate("there was no time left to send")
                try:
                    response = await self._exchange(connection, request, deadline, rule)
                except Cut:
                    if kept is None or kept.was_taken:
                        raise
                    kept = None
                    continue
                if response.keep_alive and connection.is_open and not self._is_closed:
                    self._put_idle(endpoint, connection)
                else:
                    connection.abort()
                return response
        finally:
            if self._turns is not None:
                self._turns.release()

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.close_idle()
        for connection in list(self._busy):
            connection.abort()

    def close_idle(self, before: float = math.inf) -> None:
        """Close the connections that have been idle since before this instant."""
        for endpoint, idle in list(self._idle.items()):
            for connection in [each for each in idle if each.idle_since < before]:
                idle.remove(connection)
                self._idle_count -= 1
                connection.abort()
            if not idle:
                del self._idle[endpoint]

    async def _exchange(
        self, connection: Connection, request: bytes, deadline: float, rule: BodyRule
    ) -> Response:
        self._busy.add(connection)
        try:
            await faults.reach(FaultPoint.BEFORE_HTTP_REQUEST)
            response = await connection.send(request, deadline=deadline, rule=rule)
            await faults.reach(FaultPoint.AFTER_HTTP_RESPONSE)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        return response

    async def _take_turn(self, turns: asyncio.Semaphore, by: float) -> None:
        if not turns.locked():
            await turns.acquire()
            return
        try:
            async with asyncio.timeout_at(by):
                await turns.acquire()
        except TimeoutError as error:
            raise ConnectionLate("timed out, no connection was free") from error

    async def _open(self, endpoint: Endpoint, by: float) -> Connection:
        by = min(by, asyncio.get_running_loop().time() + CONNECT_SECONDS)
        try:
            async with asyncio.timeout_at(by) as limit:
                await faults.reach(FaultPoint.BEFORE_HTTP_CONNECTION)
                return await self._open_new(endpoint)
        except (OSError, ValueError) as error:
            if limit.expired():
                raise ConnectionLate("timed out, no connection was made") from error
            raise NotConnected(f"no connection: {type(error).__name__}: {error}") from error

    # -- idle connections ------------------------------------------------------------------------

    def _take_idle(self, endpoint: Endpoint, now: float) -> Connection | None:
        """Return the connection used last, if it is still open and not idle for too long."""
        idle = self._idle.pop(endpoint, [])
        found = None
        while idle and found is None:
            connection = idle.pop()
            self._idle_count -= 1
            if connection.is_open and now - connection.idle_since <= self._keep_seconds:
                found = connection
            else:
                connection.abort()
        if idle:
            self._idle[endpoint] = idle
        return found

    def _put_idle(self, endpoint: Endpoint, connection: Connection) -> None:
        if self._idle_count >= _MOST_IDLE:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(endpoint, []).append(connection)
        self._idle_count += 1
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._keep_seconds, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle for too long; sweep again while there are any."""
        loop = asyncio.get_running_loop()
        self.close_idle(loop.time() - self._keep_seconds)
        again = loop.call_later(self._keep_seconds, self._sweep) if self._idle else None
        self._sweeping = again
