"""Requests and their answers over kept connections to one server, with little work for each.

A full HTTP client costs as much as all the rest of a Job's creation, for things that no API server
is asked for: redirects, cookies, forms, compression. Here a request is bytes that are written, and
an answer is read whole. A connection serves one request at a time and is used again only after an
answer that ended properly; whatever was cut off, late or cancelled costs it its life. Whoever finds
no connection free waits in turn. Whether a request may be sent twice is for the caller to say.
"""

from __future__ import annotations

import asyncio
import collections
import ssl
from dataclasses import dataclass
from typing import cast

from duepoint.kube import httpanswer


class NeverSent(OSError):
    """No connection was had: the request has not left this process."""


class Cut(ConnectionError):
    """The connection ended before the answer did."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a server is, and how to be sure that it is the one.

    Attributes:
        tls: None for plain HTTP.
        server_name: the name to verify; the host's where None.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections there are, how long one may take to be made and lie unused."""

    connections: int
    connect_seconds: float
    kept_seconds: float


class Lines:
    """Connections to one place; for one event loop."""

    def __init__(self, place: Place, limits: Limits) -> None:
        self.place = place
        self._limits = limits
        self._free = limits.connections
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._kept: list[_Talk] = []
        self._busy: set[_Talk] = set()
        self._closed = False

    async def send(
        self,
        content: bytes,
        *,
        deadline: float,
        is_repeatable: bool,
        most_bytes: int | None = None,
    ) -> httpanswer.Answer:
        """The answer to a request.

        Args:
            content: head and body as they go out.
            deadline: by the loop's clock.
            is_repeatable: sent again, once, where a kept connection turns out to be cut.
            most_bytes: an answer of more is not read to its end.

        Raises:
            NeverSent: there was no connection, for whatever reason.
            httpanswer.TooLarge: the answer has more than ``most_bytes``.
            TimeoutError, OSError: there was no answer.
        """
        await self._take_place(deadline)
        try:
            talk = self._kept_one()
            if talk is not None:
                try:
                    return await self._asked(talk, content, deadline, most_bytes)
                except Cut:
                    if talk.was_heard or not is_repeatable:
                        raise
            return await self._asked(await self._connected(deadline), content, deadline, most_bytes)
        finally:
            self._give_place()

    def close(self) -> None:
        """Close all connections; requests under way are cut."""
        self.retire()
        for talk in list(self._busy):
            talk.abort()

    def retire(self) -> None:
        """Others are used from now on: requests under way end, and their connections with them."""
        self._closed = True
        for talk in self._kept:
            talk.abort()
        self._kept.clear()

    async def _asked(
        self, talk: _Talk, content: bytes, deadline: float, most_bytes: int | None
    ) -> httpanswer.Answer:
        self._busy.add(talk)
        try:
            answer = await talk.ask(content, deadline, most_bytes)
        except BaseException:
            talk.abort()
            raise
        finally:
            self._busy.discard(talk)
        if answer.keeps and not self._closed:
            talk.kept_at = asyncio.get_running_loop().time()
            self._kept.append(talk)
        else:
            talk.abort()
        return answer

    # -- places ----------------------------------------------------------------------------------

    async def _take_place(self, deadline: float) -> None:
        if self._closed:
            raise NeverSent("the session is closed")
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as ended:
            if turn.done() and not turn.cancelled():
                self._give_place()  # it came too late for whoever waited
            else:
                turn.cancel()
            if isinstance(ended, TimeoutError):
                raise NeverSent("timed out, no connection was free") from ended
            raise

    def _give_place(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    # -- connections -----------------------------------------------------------------------------

    def _kept_one(self) -> _Talk | None:
        """The one used last, for as long as nobody can have closed it for its age."""
        oldest = asyncio.get_running_loop().time() - self._limits.kept_seconds
        while self._kept:
            talk = self._kept.pop()
            if talk.is_open and talk.kept_at >= oldest:
                return talk
            talk.abort()
        return None

    async def _connected(self, deadline: float) -> _Talk:
        loop = asyncio.get_running_loop()
        place = self.place
        name = (place.server_name or place.host) if place.tls is not None else None
        try:
            async with asyncio.timeout_at(
                min(deadline, loop.time() + self._limits.connect_seconds)
            ):
                _, talk = await loop.create_connection(
                    lambda: _Talk(loop),
                    place.host,
                    place.port,
                    ssl=place.tls,
                    server_hostname=name,
                )
        except TimeoutError as error:
            raise NeverSent("timed out, no connection was made") from error
        except (OSError, ValueError) as error:
            raise NeverSent(f"no connection: {type(error).__name__}: {error}") from error
        return talk


class _Talk(asyncio.Protocol):
    """One connection's side: asks, one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reading = httpanswer.Reading()
        self._answer: asyncio.Future[httpanswer.Answer] | None = None
        self.kept_at = 0.0
        #: Whether anything came since it was asked last.
        self.was_heard = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(
        self, content: bytes, deadline: float, most_bytes: int | None = None
    ) -> httpanswer.Answer:
        """The answer; raises Cut, httpanswer.NotHttp, httpanswer.TooLarge and TimeoutError."""
        self.was_heard = False
        if self._transport is None:
            raise Cut("the connection was closed")
        self._reading = httpanswer.Reading(most_bytes)
        answer: asyncio.Future[httpanswer.Answer] = self._loop.create_future()
        self._answer = answer
        timer = self._loop.call_at(deadline, self._expire, answer)
        try:
            self._transport.write(content)
            return await answer
        finally:
            timer.cancel()
            self._answer = None

    def abort(self) -> None:
        """Close at once; what was not sent yet is forgotten."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the transport calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.was_heard = True
        if self._answer is None or self._answer.done():  # something came while nobody asked
            self.abort()
            return
        try:
            whole = self._reading.feed(data)
        except (httpanswer.NotHttp, httpanswer.TooLarge) as error:
            self._tell(error)
            return
        if whole is not None and not self._answer.done():
            self._answer.set_result(whole)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is None:
            return
        whole = self._reading.end() if exc is None else None
        if whole is not None and not self._answer.done():
            self._answer.set_result(whole)
        else:
            self._tell(Cut(f"the connection was cut: {exc}" if exc else "the connection was cut"))

    def _expire(self, answer: asyncio.Future[httpanswer.Answer]) -> None:
        if not answer.done():
            answer.set_exception(TimeoutError())

    def _tell(self, trouble: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(trouble)
