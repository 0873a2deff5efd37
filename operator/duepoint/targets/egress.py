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
import functools
import socket
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import aiohttp.abc
from aiohttp.connector import AddrInfoType

from duepoint import redisurl, tlsrules
from duepoint.targets import addresses, conversation, egressrules, lookups

#: How long the addresses of our own Redis and API server are believed, and looked for.
_OWN_SECONDS = 60.0
_OWN_LOOKUP_SECONDS = 2.0
_OWN_THREADS = 4
#: From one look to the next while an address of ours is unknown.
_OWN_RETRY_SECONDS = 1.0
#: The resolver's definite answer that a name leads nowhere; anything else is no answer.
_NO_SUCH_NAME = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)
)


class Blocked(OSError):
    """Raised in place of dialling; ``Dial.denials`` holds the reasons."""


class Unready(OSError):
    """Raised in place of dialling: an address of our own servers is not known yet; try later."""


@dataclass(slots=True)
class Dial:
    """One call's way through the guard: where it goes, for whom, and what was refused on the way.

    ``namespace`` is the Schedule's; its names take no more than its share of the look-ups.
    """

    route: egressrules.Route
    namespace: str = ""
    denials: list[egressrules.Denied] = field(default_factory=list)


_dial: contextvars.ContextVar[Dial | None] = contextvars.ContextVar("egress_dial", default=None)

#: host, port -> addresses; raises OSError (socket.gaierror) where there are none.
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
#: Hosts and ports of our own servers, as far as they are known by now.
Servers = Callable[[], Iterable[tuple[str, int]]]


class Guard(aiohttp.abc.AbstractResolver):
    """Resolver and socket factory of the one connector through which webhooks go.

    Args:
        policy: of this installation.
        own: our Redis and API server; asked again before each new connection, because the nodes of
            a cluster and the primary that Sentinel names are found while the process runs.
        lookup: in place of the system's resolver.
    """

    def __init__(
        self,
        policy: egressrules.Policy,
        own: Servers = tuple,
        *,
        lookup: Lookup | None = None,
    ) -> None:
        self._policy = policy
        self._lookups = lookups.Lookups()
        self._lookup = lookup or self._system_lookup
        self._own_pool = futures.ThreadPoolExecutor(_OWN_THREADS, thread_name_prefix="own lookup")
        self._own = _OwnServers(own, lookup or self._own_lookup)

    def connector(self, *, tls: ssl.SSLContext | None = None) -> conversation.Connector:
        """A connector that dials nothing without asking here; needs a running loop."""
        return conversation.Connector(
            ssl=tls or _public_context(),
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
            Unready: an address of our own servers is unknown, so nothing can be told from it.
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
        self._lookups.close()
        self._own_pool.shutdown(wait=False, cancel_futures=True)

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
        return await self._lookups.addresses(host, port, _current().namespace)

    async def _own_lookup(self, host: str, port: int) -> Sequence[str]:
        """Of a server of ours, in threads of their own: no tenant's names keep it waiting."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._own_pool, lookups.ask_system, host, port)


class _OwnServers:
    """The addresses of our Redis and API server, looked up now and then.

    A look-up that fails is no answer: the addresses of the last good one stay, and where there
    never was one nothing is dialled, because it might be the very server that is looked for. Only
    the resolver's word that there is no such name counts as none.
    """

    def __init__(self, servers: Servers, lookup: Lookup) -> None:
        self._servers = servers
        self._lookup = lookup
        self._looking = asyncio.Lock()
        self._fresh_until = float("-inf")
        self._looked_for: frozenset[tuple[str, int]] = frozenset()
        self._found: dict[tuple[str, int], egressrules.Own] = {}
        self.known: egressrules.Own = frozenset()

    def is_fresh(self) -> bool:
        """Whether every server of today was looked for, and lately."""
        is_young = asyncio.get_running_loop().time() < self._fresh_until
        return is_young and self._looked_for.issuperset(self._servers())

    async def refresh(self) -> None:
        """Look again where the last look is old; raises Unready."""
        if self.is_fresh():
            return
        is_new = not self._looked_for.issuperset(self._servers())
        if not is_new and self._looking.locked() and not self._unknown():
            return  # what is known serves while another delivery looks
        async with self._looking:
            if not self.is_fresh():
                await self._look()
        if unknown := self._unknown():
            host, port = unknown[0]
            raise Unready(f"the address of Duepoint's own server {host}:{port} cannot be looked up")

    async def _look(self) -> None:
        servers = frozenset(self._servers())
        found = await asyncio.gather(*(self._addresses(host, port) for host, port in servers))
        for server, its_addresses in zip(servers, found, strict=True):
            if its_addresses is not None:
                self._found[server] = its_addresses
        self._looked_for = servers
        self.known = frozenset[Any]().union(*self._found.values())
        seconds = _OWN_RETRY_SECONDS if self._unknown() else _OWN_SECONDS
        self._fresh_until = asyncio.get_running_loop().time() + seconds

    def _unknown(self) -> list[tuple[str, int]]:
        return sorted(self._looked_for - self._found.keys())

    async def _addresses(self, host: str, port: int) -> egressrules.Own | None:
        """None where nothing could be found out."""
        try:
            async with asyncio.timeout(_OWN_LOOKUP_SECONDS):
                texts = (host,) if addresses.parse(host) else await self._lookup(host, port)
        except socket.gaierror as error:
            return frozenset() if error.errno in _NO_SUCH_NAME else None
        except OSError:  # TimeoutError included
            return None
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


@functools.cache
def _public_context() -> ssl.SSLContext:
    """Trusts the authorities of the system; one for all, because reading them takes 20 ms."""
    context = tlsrules.client_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


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
