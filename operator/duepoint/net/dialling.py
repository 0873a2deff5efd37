"""The guarded dialler: resolve, judge, connect, negotiate TLS. The only way to a tenant's server.

The worker must not be a confused deputy for a user who may only write Schedules in one namespace.
It checks every address of a new connection as the socket gets it (``egressrules.verdict``), so that
neither an IP literal nor a name that changes its answer gets past the rules. If one address of a
name is denied, it refuses the whole name before it dials. It does not judge a kept connection again
(``httpclient.Endpoint`` says which calls may share one).

``GuardedThread`` is for a library that opens its own connections: a thread whose event loop opens
every connection through a dialler. aiokafka connects to any host that the brokers advertise, and no
setting changes how. It calls ``loop.create_connection``, as asyncio libraries do. So it runs on a
loop of its own whose method uses the dialler of the current context and whose other network methods
refuse: if the library starts to dial differently, it connects to nothing. The dialler itself runs
on the loop that started the thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import socket
import ssl
import ssl as tls
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar, cast

import aiohappyeyeballs
import structlog

from duepoint import tlsrules
from duepoint.net import addresses, egressrules, httpclient, resolving

#: Delay before the next address is tried in parallel (RFC 8305).
_NEXT_ADDRESS_SECONDS = 0.25

_logger = structlog.get_logger()


class Blocked(OSError):
    """The egress rules deny an address; the text names the setting to change, but no address."""


class Unresolved(OSError):
    """The name has no address, or the resolver did not answer."""


class Dialler:
    """Opens connections within the egress rules; each worker has one.

    Args:
        policy: the egress settings of this installation.
        own: returns our Redis and API server. Called before each new connection, because the nodes
            of a cluster and Sentinel's primary are found while the process runs.
        ask: replaces the system's resolver.
    """

    def __init__(
        self,
        policy: egressrules.EgressPolicy,
        own: resolving.Servers = tuple,
        *,
        ask: resolving.Ask = resolving.ask_system,
    ) -> None:
        self._policy = policy
        self._lookups = resolving.Lookups(ask)
        self._own = resolving.OwnServers(own, ask)

    async def open(self, endpoint: httpclient.Endpoint) -> httpclient.Connection:
        """Return an HTTP connection; raises ssl.SSLError, and as ``connect``."""
        made = await self.connect(endpoint)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                httpclient.Connection,
                sock=made,
                ssl=endpoint.tls,
                server_hostname=endpoint.tls_name,
            )
        except BaseException:
            made.close()
            raise
        return connection

    async def connect(self, endpoint: httpclient.Endpoint) -> socket.socket:
        """Return a connected socket, before any TLS.

        Raises:
            Blocked: an address is denied.
            resolving.Unready: no address can be judged now.
            Unresolved: there is no address.
            OSError: no address answered.
        """
        await self._own.refresh()
        route = endpoint.route
        if route is None:
            _refuse()
        if addresses.is_odd_number(endpoint.host):
            raise Blocked(f"{endpoint.host!r} is a number; write a host name or a plain IP address")
        targets = route.endpoints or await self._resolved(endpoint)
        found = [
            socket.getaddrinfo(*target, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
            for target in targets
        ]
        for *_, (address, port, *_) in found:
            self._check(str(address), int(port), route, endpoint)
        made = await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS
        )
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    async def close(self) -> None:
        """Release the look-up threads; those that hang end by themselves."""
        self._lookups.close()
        self._own.close()

    async def _resolved(self, endpoint: httpclient.Endpoint) -> Sequence[tuple[str, int]]:
        host, port = endpoint.host, endpoint.port
        if addresses.parse(host) is not None:
            return [(host, port)]
        try:
            found = await self._lookups.addresses(host, port, endpoint.namespace)
        except OSError as error:
            raise Unresolved(f"{host} cannot be resolved: {error}") from error
        if not found:
            raise Unresolved(f"{host} has no address")
        return [(address, port) for address in found]

    def _check(
        self, address: str, port: int, route: egressrules.Route, endpoint: httpclient.Endpoint
    ) -> None:
        judged = egressrules.verdict(address, port, self._policy, route, self._own.known)
        if judged is not None:
            # The details, which the Schedule's author must not read; a metric counts denials.
            namespace, host = endpoint.namespace, endpoint.host
            _logger.warning("address denied", namespace=namespace, host=host, detail=judged.detail)
            raise Blocked(judged.reason)


@functools.cache
def public_tls() -> ssl.SSLContext:
    """Return the shared context that trusts the system's authorities; reading them takes 20 ms."""
    context = tlsrules.client_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


# -- a loop that connects by a dialler -----------------------------------------------------------

T = TypeVar("T")

#: host, port, whether TLS follows -> a connected socket; raises OSError.
Dial = Callable[[str, int, bool], Awaitable[socket.socket]]

_dial: contextvars.ContextVar[Dial | None] = contextvars.ContextVar("dial", default=None)


def dial_by(dial: Dial) -> None:
    """Make this task, and the tasks that it creates from here on, connect by this function."""
    _dial.set(dial)


class GuardedLoop(asyncio.SelectorEventLoop):
    """An event loop that connects only by the dialler of the context; bounds Kafka's frames."""

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: tls.SSLContext | None = None,
        **options: Any,  # noqa: ANN401 - of the library; any is refused
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See ``asyncio.loop.create_connection``; raises what the dialler raises."""
        dial = _dial.get()
        if dial is None or host is None or port is None or options:
            _refuse()
        made = await dial(host, int(port), ssl is not None)
        protocol = cast("asyncio.Protocol", protocol_factory())
        try:
            transport, _ = await super().create_connection(
                lambda: BoundedFrames(protocol),
                sock=made,
                ssl=ssl,
                server_hostname=host if ssl else None,
            )
        except BaseException:
            made.close()
            raise
        return transport, protocol

    async def _refusing(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        _refuse()

    sock_connect = create_datagram_endpoint = create_unix_connection = _refusing


class GuardedThread:
    """Runs coroutines on a guarded loop, for callers on another loop."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        self._started: tuple[GuardedLoop, threading.Thread] | None = None

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the guarded loop and return its result."""
        if self._started is None:
            loop = GuardedLoop()
            thread = threading.Thread(target=self._run, args=(loop,), daemon=True)
            self._started = loop, thread
            thread.start()
        loop, _ = self._started
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def close(self) -> None:
        """Cancel what runs there, and end the thread."""
        if self._started is not None:
            loop, thread = self._started
            loop.call_soon_threadsafe(self._stopped.set)
            await asyncio.to_thread(thread.join)

    def _run(self, loop: GuardedLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._stopped.wait())


def _refuse() -> NoReturn:
    raise Blocked("a connection was about to be opened past the egress rules")


#: Longest frame. Answers to a producer (topics, brokers, a record's offset) take kilobytes.
MOST_BYTES = 4 << 20
_HEAD_BYTES = 4


class BoundedFrames(asyncio.Protocol):
    """Passes everything to another protocol, unless a Kafka broker sends a frame that is too long.

    Each answer begins with its length in four bytes. aiokafka reads that many bytes, up to 2 GiB,
    and no setting bounds it, although the broker may be a tenant's. This protocol stands between
    the transport and the library's protocol and follows the lengths as the bytes pass. If a length
    is larger than any answer to a producer, it aborts the connection before the library stores
    the frame.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._head = b""  # the part of a length that has come
        self._left = 0  # bytes of the current frame that have not come yet
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``, here and in the methods below."""
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
        data, at = self._head + data, self._left
        while at + _HEAD_BYTES <= len(data):
            length = int.from_bytes(data[at : at + _HEAD_BYTES], "big")
            if length > MOST_BYTES:
                return True
            at += _HEAD_BYTES + length
        self._head, self._left = data[at:], max(0, at - len(data))
        return False
