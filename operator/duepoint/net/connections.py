"""A pool of keep-alive connections, by endpoint.

Idle connections are kept for a while and then closed; the one used last serves next. A server may
close an idle connection just before the pool uses it. If the request did not reach the server, the
pool sends it over a new connection. If it may have reached the server and no byte came back, the
pool repeats it only if the caller says that this is harmless. ``Open`` decides which servers may be
connected to. If the number of open connections is limited, further requests wait in order.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from duepoint import faults
from duepoint.faults import FaultPoint
from duepoint.net import egressrules, http1

CONNECT_SECONDS = 5.0

#: If the server had already closed the connection, the cut shows within this time. A request that
#: is cut later is not repeated: the server has had time to begin.
_STALE_SECONDS = 1.0
#: Most idle connections of a pool; beyond it the oldest is closed.
_MOST_IDLE = 1024


class NotConnected(OSError):
    """No connection was made, so nothing has left this process; the cause says why."""


class ConnectionLate(NotConnected):
    """No connection was made in time."""


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
Open = Callable[[Endpoint], Awaitable[http1.Connection]]


async def connect(endpoint: Endpoint) -> http1.Connection:
    """Connect to a server that the operator of the installation named, such as the API server."""
    _, made = await asyncio.get_running_loop().create_connection(
        http1.Connection,
        endpoint.host,
        endpoint.port,
        ssl=endpoint.tls,
        server_hostname=endpoint.tls_name,
    )
    return made


@dataclass(slots=True, kw_only=True)
class Call:
    """One request.

    Attributes:
        content: head and body as bytes.
        deadline: when the response must be complete, by the loop's clock.
        connect_by: when there must be a connection.
        is_repeatable: whether it may be sent again although the server may have it already.
        rule: how much of the response's body to read.
        may_send: called once there is a connection; if it returns False, nothing is sent.
    """

    endpoint: Endpoint
    content: bytes
    deadline: float
    connect_by: float
    is_repeatable: bool
    rule: http1.BodyRule = http1.WHOLE
    may_send: Callable[[], bool] | None = None


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
        self._idle: dict[Endpoint, list[http1.Connection]] = {}
        #: All idle connections, least recently used first.
        self._ages: dict[http1.Connection, Endpoint] = {}
        self._busy: set[http1.Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def send(self, call: Call) -> http1.Response:
        """Send a request and return its response.

        Raises:
            NotConnected: nothing was sent.
            TimeoutError, OSError: see ``http1.Connection.send``.
        """
        if self._is_closed:
            raise NotConnected("the connections are closed")
        if self._turns is not None:
            await self._take_turn(self._turns, call.connect_by)
        try:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            if (kept := self._kept(call.endpoint, begun)) is not None:
                kept.reuse()
                try:
                    return await self._exchange(kept, call)
                except http1.Cut:
                    lasted = loop.time() - begun
                    may_repeat = call.is_repeatable and lasted < _STALE_SECONDS
                    if kept.was_heard or (kept.was_taken and not may_repeat):
                        raise
            return await self._exchange(await self._open(call.endpoint, call.connect_by), call)
        finally:
            if self._turns is not None:
                self._turns.release()

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._is_closed = True
        self.close_idle()
        for connection in list(self._busy):
            connection.abort()

    def close_idle(self) -> None:
        """Close the connections that are not in use."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for connection in list(self._ages):
            self._drop(connection)

    async def _exchange(self, connection: http1.Connection, call: Call) -> http1.Response:
        if call.may_send is not None and not call.may_send():
            self._keep(call.endpoint, connection)
            raise ConnectionLate("there was no time left to send")
        self._busy.add(connection)
        try:
            await faults.reach(FaultPoint.BEFORE_HTTP_REQUEST)
            response = await connection.send(call.content, deadline=call.deadline, rule=call.rule)
            await faults.reach(FaultPoint.AFTER_HTTP_RESPONSE)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        if response.keep_alive and connection.is_open and not self._is_closed:
            self._keep(call.endpoint, connection)
        else:
            connection.abort()
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

    async def _open(self, endpoint: Endpoint, by: float) -> http1.Connection:
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

    def _kept(self, endpoint: Endpoint, now: float) -> http1.Connection | None:
        """Return the connection used last, if it is still open and not idle for too long."""
        idle = self._idle.get(endpoint)
        if idle is None:
            return None
        found = None
        while idle and found is None:
            connection = idle.pop()
            del self._ages[connection]
            if connection.is_open and now - connection.idle_since <= self._keep_seconds:
                found = connection
            else:
                connection.abort()
        if not idle:
            del self._idle[endpoint]
        return found

    def _keep(self, endpoint: Endpoint, connection: http1.Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(endpoint, []).append(connection)
        self._ages[connection] = endpoint
        if len(self._ages) > _MOST_IDLE:
            self._drop(next(iter(self._ages)))
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._keep_seconds, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle for too long; sweep again after the same time."""
        self._sweeping = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._keep_seconds
        for connection in list(self._ages):
            if connection.idle_since >= oldest:
                self._sweeping = loop.call_later(self._keep_seconds, self._sweep)
                return
            self._drop(connection)

    def _drop(self, connection: http1.Connection) -> None:
        self._forget(connection)
        connection.abort()

    def _forget(self, connection: http1.Connection) -> None:
        """Remove a connection from the idle ones."""
        endpoint = self._ages.pop(connection)
        idle = self._idle[endpoint]
        idle.remove(connection)
        if not idle:
            del self._idle[endpoint]
