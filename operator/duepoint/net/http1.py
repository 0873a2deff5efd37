"""An HTTP/1.1 client for one connection: encodes requests and parses responses.

``httptools`` (llhttp) parses bodies with a length, in chunks, or up to the end of the connection.
Interim responses (RFC 9110, 15.2) are skipped. A connection serves one request at a time. It may be
reused only after a response that ended properly and with nothing after it: trailing or unsolicited
data, a cut, a timeout and a cancellation close it. Heads are bounded, bodies by ``BodyRule``. There
are no redirects, cookies, compression or uploads, because neither webhooks nor an API server need
them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import httptools

#: Longest head, interim responses included, and most header lines.
HEAD_LIMIT_BYTES = 64 * 1024
_MOST_HEADERS = 256
#: Most bytes that may arrive for each byte of the body's limit: a one-byte chunk adds five bytes.
#: Without a bound, chunk extensions and trailers would keep us busy until the deadline.
_MOST_FRAMING = 8
#: Most interim responses before the response; a server that sends more only keeps us busy.
MOST_INTERIM = 32

_SWITCHING_PROTOCOLS = 101
_FRAMED_BY = ("content-length", "transfer-encoding")


class NotHttp(OSError):
    """The server sent something that is not an HTTP response."""


class TooLarge(OSError):
    """The body has more bytes than the caller accepts."""


class Cut(ConnectionError):
    """The connection ended before the response did."""


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


class RequestHead:
    """The common part of several requests: request line and headers, checked and encoded once.

    Raises:
        ValueError: a part contains a line break or a null.
    """

    __slots__ = ("_common",)

    def __init__(self, method: str, target: str, headers: Iterable[tuple[str, str]]) -> None:
        lines = [f"{method} {target} HTTP/1.1", *_header_lines(headers)]
        self._common = _encoded(lines)

    def __len__(self) -> int:
        """Return its size in bytes."""
        return len(self._common)

    def request(self, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
        """Return the bytes of a request, with its own headers and Content-Length.

        Args:
            body: None = no body.

        Raises:
            ValueError: a header contains a line break or a null.
        """
        lines = _header_lines(headers)
        if body is None:
            return b"%b%b\r\n" % (self._common, _encoded(lines))
        lines.append(f"Content-Length: {len(body)}")
        return b"%b%b\r\n%b" % (self._common, _encoded(lines), body)


def request_bytes(
    method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None
) -> bytes:
    """Return the bytes of a single request; see ``RequestHead``."""
    return RequestHead(method, target, ()).request(headers, body)


def _header_lines(headers: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers]


def _encoded(lines: list[str]) -> bytes:
    """Return the lines with CRLF after each; raises ValueError if one contains a line break."""
    text = "\r\n".join([*lines, ""])
    breaks = len(lines)
    if text.count("\r") != breaks or text.count("\n") != breaks or "\0" in text:
        raise ValueError("a line break or a null in a header or the URL")
    return text.encode()


class ResponseParser:
    """Parses one response: feed it the bytes that arrive until it returns the response."""

    def __init__(self, rule: BodyRule = WHOLE) -> None:
        self._rule = rule
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._status = 0
        self._interim = 0
        self._head_bytes = 0
        self._body_bytes = 0
        self._framed_bytes = 0  # of the body with its framing
        self._headers: dict[str, str] = {}
        self._header_lines = self._header_bytes = 0
        self._parts: list[bytes] = []
        self._is_in_body = False
        self._response: Response | None = None

    def feed(self, data: bytes) -> Response | None:
        """Parse more data; return the response once it is complete.

        Raises:
            NotHttp: the data are not a response, or come after a complete one.
            TooLarge: the body is longer than the rule allows and not optional.
        """
        if self._parser is None:
            raise NotHttp("more came than a response")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._response is not None:
                self._refuse_reuse()
            elif (partial := self.partial()) is not None:
                return partial
            else:
                raise NotHttp(f"no response to a request: {error}: {data[:100]!r}") from error
        if self._response is None:
            self._check_bounds(len(data))
        return self._released()

    def partial(self) -> Response | None:
        """Return the response read so far, if its head is complete and its body optional."""
        if not (self._is_in_body and self._rule.is_optional):
            return None
        self._response = self._made(keep_alive=False)
        return self._released()

    def end(self) -> Response | None:
        """Return the response at the end of the connection, if that is where its body ends."""
        if self._is_in_body and not any(name in self._headers for name in _FRAMED_BY):
            return self._made(keep_alive=False)
        return self.partial()

    def _check_bounds(self, size: int) -> None:
        if not self._is_in_body:
            self._head_bytes += size
            if self._head_bytes > HEAD_LIMIT_BYTES:
                raise NotHttp("the head is too long")
            return
        most = self._rule.most_bytes
        if most is None:
            return
        self._framed_bytes += size
        is_framed_long = self._framed_bytes > _MOST_FRAMING * most + HEAD_LIMIT_BYTES
        if self._body_bytes > most or is_framed_long:
            if self._rule.is_optional:
                self._response = self._made(keep_alive=False)
            else:
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
        self._header_lines += 1
        self._header_bytes += len(name) + len(value)
        if self._header_lines > _MOST_HEADERS or self._header_bytes > HEAD_LIMIT_BYTES:
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
            self._interim += 1
            if self._interim > MOST_INTERIM:
                raise NotHttp(f"more than {MOST_INTERIM} interim responses")
            return
        self._is_in_body = False
        keep_alive = self._parser is not None and self._parser.should_keep_alive()
        self._response = self._made(keep_alive=keep_alive)


class Connection(asyncio.Protocol):
    """One connection, for one request at a time.

    Attributes:
        was_heard: whether anything arrived since the last request was sent.
        was_taken: whether any byte sent since ``reuse`` may have reached the server before it
            closed the connection. False only if the server's kernel has acknowledged none.
        idle_since: when the pool put the connection aside, by the loop's clock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._pending: asyncio.Future[Response] | None = None
        #: Deadline of the request in flight. The timer outlives answered requests, because making
        #: and cancelling one costs as much as parsing a response.
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.was_heard = False
        self.was_taken = True
        self._acknowledged: int | None = None
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection, as far as we know."""
        return self._transport is not None and not self._transport.is_closing()

    def reuse(self) -> None:
        """Record how many bytes the server acknowledged before the next request."""
        if self._transport is not None:
            self._acknowledged, self.was_taken = _acknowledged(self._transport), True

    async def send(self, request: bytes, *, deadline: float, rule: BodyRule = WHOLE) -> Response:
        """Send a request and return its response; ``deadline`` is on the loop's clock.

        Raises:
            Cut, NotHttp, TooLarge, TimeoutError: there was none. ``abort`` the connection then.
        """
        self.was_heard = False
        if self._transport is None:
            raise Cut("the connection was closed")
        self._parser = ResponseParser(rule)
        pending: asyncio.Future[Response] = self._loop.create_future()
        self._pending = pending
        self._deadline = deadline
        if self._timer is not None and deadline < self._timer_at:
            self._stop_timer()
        if self._timer is None:
            self._timer, self._timer_at = self._loop.call_at(deadline, self._expire), deadline
        try:
            self._transport.write(request)
            return await pending
        finally:
            self._pending = None

    def abort(self) -> None:
        """Close at once and drop what was not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the transport calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.was_heard = True
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
        self._stop_timer()
        response = self._parser.end() if exc is None else self._parser.partial()
        self._settle(response, Cut(f"the connection was cut{f': {exc}' if exc else ''}"))

    def _note_taken(self) -> None:
        if self.was_taken and self._acknowledged is not None and self._transport is not None:
            self.was_taken = _acknowledged(self._transport) != self._acknowledged

    # -- the deadline ----------------------------------------------------------------------------

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """End the request at its deadline; restart a timer that was set for an earlier request."""
        self._timer = None
        if self._pending is None:
            return
        if self._timer_at < self._deadline:
            self._timer_at = self._deadline
            self._timer = self._loop.call_at(self._deadline, self._expire)
        else:
            self._settle(self._parser.partial(), TimeoutError())

    def _settle(self, response: Response | None, error: Exception) -> None:
        """End the request with the response, or with the error if there is none."""
        if self._pending is None or self._pending.done():
            return
        if response is not None:
            self._pending.set_result(response)
        else:
            self._pending.set_exception(error)


#: Format and offset of ``tcpi_bytes_acked`` in Linux's ``struct tcp_info``.
_BYTES_ACKED = struct.Struct("=Q"), 120


def _acknowledged(transport: asyncio.Transport) -> int | None:
    """Return how many bytes the peer's kernel has acknowledged; None if ours does not tell."""
    connected = transport.get_extra_info("socket")
    if connected is None or not hasattr(socket, "TCP_INFO"):
        return None
    packed, offset = _BYTES_ACKED
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, offset + packed.size)
        return int(packed.unpack_from(info, offset)[0])
    except (OSError, struct.error):
        return None
