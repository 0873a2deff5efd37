"""One HTTP/1.1 request and as much of its answer as anybody reads, over a kept connection.

What ``aiohttp.ClientSession`` would do, less everything that no webhook wants (redirects, cookies,
proxies, uploads, compression), because that costs as much as all the rest of a delivery; and what
is not here, no receiver can make use of. Whom a connection may be opened to is the connector's, so
the egress guard's, to say.

The head and the body go out in one write. The status line decides: a body that is cut, endless,
slow or garbage costs its sender the connection and nothing else. A connection is used again only
after an answer that has ended properly; any other is torn down, with what it has not sent yet.
A kept connection may have been closed by the other side just before it was used: a request that
nothing was heard of on such a one is sent once more, on a new one, within the same attempt. Its
``webhook-id`` tells the receiver should both have come.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
import yarl
from aiohttp import connector as connectors
from aiohttp import streams

from duepoint.targets import conversation, outgoing

CONNECT_SECONDS = 5.0

#: A connection that was closed before it was used says so at once; one that is cut later is not
#: sent anything twice, for then the receiver has had time to begin.
_STALE_SECONDS = 1.0
#: Time limits are counted in these, so that few different ones are made.
_STEP_SECONDS = 0.02
_NO_CEILING = 1e9  # aiohttp rounds time limits up to whole seconds, from this many seconds on


class ConnectionLate(TimeoutError):
    """No connection was had in time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered; ``body`` is the start of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchanges:
    """Sends requests through one connector, made at the first, because it belongs to a loop."""

    def __init__(self, connector: Callable[[], conversation.Connector]) -> None:
        self._make = connector
        self._made: conversation.Connector | None = None

    async def send(
        self,
        request: outgoing.Request,
        line: conversation.Line,
        *,
        seconds: float,
        connect_seconds: float,
        may_ask: Callable[[], bool] = lambda: True,
    ) -> Reply:
        """The answer.

        Args:
            request: what to send.
            line: where to.
            seconds: the whole lasts no longer; a body that takes more of them is left unread.
            connect_seconds: a connection must be had within these.
            may_ask: asked once there is a connection; nothing is sent where it says no.

        Raises:
            ConnectionLate, TimeoutError: nothing was answered in time.
            aiohttp.ClientError, OSError: nothing was answered.
            ValueError: this cannot be sent at all.
        """
        content = _bytes(request, line.url)
        now = asyncio.get_running_loop().time()
        ends, connect_by = now + seconds, now + min(seconds, connect_seconds)
        found, talk = await self._connected(line, connect_by, is_new=False)
        _check(found, may_ask)
        begun = asyncio.get_running_loop().time()
        try:
            return await _asked(found, talk, content, ends)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            if talk.asked == 1 or talk.was_heard or not _is_stale(begun):
                raise
        found, talk = await self._connected(line, connect_by, is_new=True)
        _check(found, may_ask)
        return await _asked(found, talk, content, ends)

    async def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            await self._made.close()

    async def _connected(
        self, line: conversation.Line, connect_by: float, *, is_new: bool
    ) -> tuple[connectors.Connection, conversation.Conversation]:
        """A connection that is kept, or a new one."""
        if self._made is None:
            self._made = self._make()
        left = connect_by - asyncio.get_running_loop().time()
        limit = _connect_limit(int(left / _STEP_SECONDS))
        while True:
            try:
                found = await self._made.connect(line, [], limit)
            except TimeoutError as error:
                raise ConnectionLate from error
            talk = found.protocol
            assert isinstance(talk, conversation.Conversation)  # noqa: S101 - our connector's
            if not (talk.should_close or (is_new and talk.asked)):
                return found, talk
            found.close()  # something came while nobody asked, or the others were closed, too


def _check(connection: connectors.Connection, may_ask: Callable[[], bool]) -> None:
    """Raise ConnectionLate where nothing may be sent any more; the connection is kept."""
    if not may_ask():
        connection.release()
        raise ConnectionLate


async def _asked(
    connection: connectors.Connection,
    talk: conversation.Conversation,
    content: bytes,
    ends: float,
) -> Reply:
    """The answer; the connection is kept if that was all of it."""
    timer = asyncio.get_running_loop().call_at(ends, talk.expire)
    is_over = False
    try:
        talk.ask(content)
        status, headers, stream = await talk.wait_for_head()
        body = b"" if stream.at_eof() else await _start_of(stream)
        is_over = stream.at_eof() and stream.exception() is None
    finally:
        timer.cancel()
        if is_over:
            connection.release()
        else:
            _tear_down(connection)
    return Reply(status, headers, body)


async def _start_of(stream: streams.StreamReader) -> bytes:
    body = bytearray()
    try:
        async for chunk in stream.iter_any():
            body += chunk
            if len(body) >= conversation.BODY_LIMIT_BYTES:
                break
    except (aiohttp.ClientError, OSError, ValueError):  # TimeoutError is an OSError
        pass
    return bytes(body[: conversation.BODY_LIMIT_BYTES])


def _is_stale(begun: float) -> bool:
    return asyncio.get_running_loop().time() - begun < _STALE_SECONDS


def _tear_down(connection: connectors.Connection) -> None:
    """Closed at once: what a receiver has not taken yet is not kept for it."""
    if connection.protocol is not None:
        connection.protocol.abort()
    connection.close()


def _bytes(request: outgoing.Request, url: yarl.URL) -> bytes:
    """The request as it goes out."""
    lines = [f"{request.method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    if request.body is not None:
        lines.append(f"Content-Length: {len(request.body)}")
    head = "\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count("\r") != breaks or head.count("\n") != breaks or "\0" in head:
        raise ValueError("a line break or a null in a header or the URL")
    return f"{head}\r\n\r\n".encode() + (request.body or b"")


@functools.lru_cache(maxsize=4096)
def _connect_limit(steps: int) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None,
        connect=max(steps, 1) * _STEP_SECONDS,
        sock_connect=CONNECT_SECONDS,
        ceil_threshold=_NO_CEILING,
    )
