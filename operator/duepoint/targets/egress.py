"""The egress guard: no webhook is sent to an address that the rules deny.

The worker must not be a confused deputy for somebody who may only write Schedules in one
namespace. The rules (``egressrules.verdict``) are asked about every address of every new
connection, at the moment of dialling (aiohttp's ``socket_factory``), so that neither an IP
literal, which no resolver sees, nor a name that changes its answer gets past them. A name of
which one answer is denied is refused as a whole, before anything is dialled.

The caller says through ``Guard.dialling`` what it is about to call; a connection that is opened
outside of it is refused. Connections are kept alive under (host, port, TLS, server name) and not
judged again: who calls a Service passes its name as ``server_hostname``, so that a ``url`` of the
same host never finds that connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import socket
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import aiohttp.abc
from aiohttp.connector import AddrInfoType

from duepoint import redisurl
from duepoint.targets import addresses, conversation, egressrules

#: Names looked up at one time; a hanging name server holds a thread for its own time only.
_LOOKUP_THREADS = 32
#: How long the addresses of our own Redis and API server are believed, and looked for.
_OWN_SECONDS = 60.0
_OWN_LOOKUP_SECONDS = 2.0


class Blocked(OSError):
    """Raised in place of dialling; ``Dial.denials`` holds the reasons."""


@dataclass(slots=True)
class Dial:
    """One call's way through the guard: where it goes, and what was refused on the way."""

    route: egressrules.Route
    denials: list[egressrules.Denied] = field(default_factory=list)


_dial: contextvars.ContextVar[Dial | None] = contextvars.ContextVar("egress_dial", default=None)

#: host, port -> addresses; raises OSError (socket.gaierror) where there are none.
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


class Guard(aiohttp.abc.AbstractResolver):
    """Resolver and socket factory of the one connector through which webhooks go."""

    def __init__(
        self,
        policy: egressrules.Policy,
        own: Sequence[tuple[str, int]] = (),
        *,
        lookup: Lookup | None = None,
    ) -> None:
        self._policy = policy
        self._pool = futures.ThreadPoolExecutor(_LOOKUP_THREADS, thread_name_prefix="lookup")
        self._lookup = lookup or self._system_lookup
        self._own = _OwnServers(own, self._lookup)

    def connector(self, *, tls: ssl.SSLContext | None = None) -> conversation.Connector:
        """A connector that dials nothing without asking here; needs a running loop."""
        return conversation.Connector(
            ssl=tls or True,
            resolver=self,
            socket_factory=self._socket,
            use_dns_cache=False,  # each new connection is judged by the answer it really uses
            limit=0,  # how many a receiver gets is decided before
            keepalive_timeout=15.0,
        )

    @contextlib.contextmanager
    def dialling(self, dial: Dial) -> Iterator[None]:
        """Connections opened in here, by this task or its children, are for this call."""
        token = self.begin(dial)
        try:
            yield
        finally:
            self.end(token)

    def begin(self, dial: Dial) -> contextvars.Token[Dial | None]:
        """From here on connections are for this call, until ``end``; see ``dialling``."""
        return _dial.set(dial)

    def end(self, token: contextvars.Token[Dial | None]) -> None:
        """Connections are for whatever they were for before."""
        _dial.reset(token)

    def is_ready_for(self, host: str) -> bool:
        """Whether ``prepare`` would have nothing to do and nothing to say."""
        return self._own.is_fresh() and not addresses.is_odd_number(host)

    async def prepare(self, host: str, dial: Dial) -> None:
        """Look up our own servers if need be; deny hosts that are numbers in disguise.

        Raises:
            Blocked: the host is one.
        """
        await self._own.refresh()
        if addresses.is_odd_number(host):
            _refuse(
                dial,
                egressrules.Denied(
                    f"{host!r} is a number; write a host name or a plain IP address"
                ),
            )

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - the signature of aiohttp
    ) -> list[aiohttp.abc.ResolveResult]:
        """The addresses to dial, every one of them allowed."""
        dial = _current()
        endpoints = dial.route.endpoints or [(one, port) for one in await self._lookup(host, port)]
        if not endpoints:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
        for address, its_port in endpoints:
            self._check(address, its_port, dial)
        return [_result(host, address, its_port) for address, its_port in endpoints]

    async def close(self) -> None:
        """Let go of the look-up threads; those that hang end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _socket(self, info: AddrInfoType) -> socket.socket:
        """The last look: this address is what ``connect`` will be called with."""
        family, kind, protocol, _, target = info
        self._check(str(target[0]), int(target[1]), _current())
        return socket.socket(family, kind, protocol)

    def _check(self, address: str, port: int, dial: Dial) -> None:
        judged = egressrules.verdict(address, port, self._policy, dial.route, self._own.known)
        if isinstance(judged, egressrules.Denied):
            _refuse(dial, judged)

    async def _system_lookup(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return tuple(dict.fromkeys(str(info[4][0]) for info in found))


class _OwnServers:
    """The addresses of our Redis and API server, looked up now and then."""

    def __init__(self, servers: Sequence[tuple[str, int]], lookup: Lookup) -> None:
        self._servers = servers
        self._lookup = lookup
        self._looking = asyncio.Lock()
        self._fresh_until = float("-inf")
        self.known: egressrules.Own = frozenset()

    async def refresh(self) -> None:
        """Look again where the last look is old. What cannot be found keeps its last addresses."""
        looked_before = self._fresh_until > float("-inf")
        if self.is_fresh() or (looked_before and self._looking.locked()):
            return
        async with self._looking:
            if not self.is_fresh():
                found = [await self._addresses(host, port) for host, port in self._servers]
                self.known = frozenset[Any]().union(*found)
                self._fresh_until = asyncio.get_running_loop().time() + _OWN_SECONDS

    def is_fresh(self) -> bool:
        """Whether the last look is young enough."""
        return asyncio.get_running_loop().time() < self._fresh_until

    async def _addresses(self, host: str, port: int) -> egressrules.Own:
        try:
            async with asyncio.timeout(_OWN_LOOKUP_SECONDS):
                texts = (host,) if addresses.parse(host) else await self._lookup(host, port)
        except OSError:  # TimeoutError included
            return self.known
        parsed = (addresses.parse(text) for text in texts)
        return frozenset(
            (one, port) for each in parsed if each for one in addresses.reached_by(each)
        )


def own_servers(redis_url: str, *urls: str) -> tuple[tuple[str, int], ...]:
    """Hosts and ports of our servers' URLs; those without a host (``unix:``) are left out."""
    return redisurl.parse(redis_url).hosts + _hosts(*urls)


def _hosts(*urls: str) -> tuple[tuple[str, int], ...]:
    usual = {"http": 80, "https": 443}
    parts = (urllib.parse.urlsplit(url) for url in urls)
    return tuple(
        (part.hostname, part.port or usual.get(part.scheme, 0)) for part in parts if part.hostname
    )


def _current() -> Dial:
    dial = _dial.get()
    if dial is None:
        raise Blocked("a connection was about to be opened past the egress guard")
    return dial


def _refuse(dial: Dial, denial: egressrules.Denied) -> None:
    dial.denials.append(denial)
    raise Blocked(denial.reason)


def _result(host: str, address: str, port: int) -> aiohttp.abc.ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": family,
        "proto": 0,
        "flags": socket.AI_NUMERICHOST,
    }
