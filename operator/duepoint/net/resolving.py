"""Resolves names: those that Schedules call, and those of our own servers, which none may call.

Names of Schedules are looked up with the system's resolver and shared fairly among namespaces.

The addresses of our servers are looked up every minute. If a look-up fails, the addresses of the
last good one stay. If there never was a good one, nothing is dialled, because any address might be
that of our own server. Only the resolver's definite answer that there is no such name counts as no
address.

In a Pod its networks are ranges of the cluster's Pods, so no setting has to name them. Many network
plugins give a Pod an address without a network (/32, /128), so its neighbours are assumed to be in
the same /24 or /64, the usual share of a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any

import structlog

from duepoint import redisurl, shares
from duepoint.net import addresses, egressrules

_logger = structlog.get_logger()

#: Names looked up at one time.
THREADS = 32
#: A single namespace gets half of the threads, two get a third each (``shares``).
_GREED = 1
#: Most names of one namespace that may wait for a thread.
MOST_WAITING = 64
#: How long a caller waits for an answer, the wait for a thread included.
LOOKUP_SECONDS = 5.0

#: host, port -> the addresses from ``socket.getaddrinfo``; called in a thread.
Ask = Callable[[str, int], Sequence[str]]


def ask_system(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name in the system's order; raises socket.gaierror."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


class Lookups:
    """Looks names up in threads; each worker has one and closes it at the end.

    ``getaddrinfo`` occupies a thread until it answers. If a name server is silent, that takes ten
    seconds and more, even after the caller has gone. So a namespace gets only its share of the
    threads (``duepoint.shares``; half of them while it is alone) and a bounded queue for them, and
    concurrent look-ups of the same name share one call. Answers are never cached: each new
    connection is judged by its own answer.
    """

    def __init__(self, ask: Ask = ask_system, *, threads: int = THREADS) -> None:
        self._ask = ask
        self._pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="lookup")
        self._places: shares.FairPlaces[str] = shares.FairPlaces(threads, greed=_GREED)
        self._under_way: dict[tuple[str, str, int], asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, host: str, port: int, namespace: str) -> Sequence[str]:
        """Return the addresses of a name that a Schedule of this namespace calls.

        Raises:
            socket.gaierror: there are none. EAI_AGAIN also if no answer came in time, or if too
                many other names of the namespace are being looked up.
        """
        key = namespace, host, port
        asked = self._under_way.get(key)
        if asked is None:
            if self._places.waiting(namespace) >= MOST_WAITING:
                raise _later(f"{MOST_WAITING} other names of namespace {namespace} are waiting")
            asked = self._under_way[key] = asyncio.create_task(self._resolve_in_turn(*key))
            # Retrieve the error: all callers may have gone, and asyncio would log it.
            asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await asyncio.shield(asked)
        except TimeoutError:
            raise _later(f"no answer within {LOOKUP_SECONDS:g} s") from None

    def close(self) -> None:
        """Release the threads; those that hang end by themselves."""
        for asked in self._under_way.values():
            asked.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _resolve_in_turn(self, namespace: str, host: str, port: int) -> Sequence[str]:
        """Look a name up; keep its place until the thread is free, even if no caller waits."""
        try:
            if not await self._places.wait(namespace, LOOKUP_SECONDS):
                raise _later(f"the other names of namespace {namespace} are not answered")
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._pool, self._ask, host, port)
            finally:
                self._places.leave(namespace)
        finally:
            del self._under_way[namespace, host, port]


def _later(why: str) -> socket.gaierror:
    return socket.gaierror(socket.EAI_AGAIN, f"the name could not be looked up: {why}")


# -- our own servers -----------------------------------------------------------------------------

#: How long the addresses stay fresh, and how long a look-up may take.
_FRESH_SECONDS = 60.0
_OWN_LOOKUP_SECONDS = 2.0
_OWN_THREADS = 4
#: Time between look-ups while an address is unknown.
_RETRY_SECONDS = 1.0
#: The resolver's definite answer that a name has no address; other errors are failures.
_NO_SUCH_NAME = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)
)

#: Hosts and ports of our own servers, as far as we have found them.
Servers = Callable[[], Iterable[tuple[str, int]]]


class Unready(OSError):
    """An address of our own servers is not known yet, so no other can be judged; try later."""


class OwnServers:
    """Looks up our servers' addresses, in threads of its own, which no tenant's names can block."""

    def __init__(self, servers: Servers, ask: Ask = ask_system) -> None:
        self._servers = servers
        self._lookups = Lookups(ask, threads=_OWN_THREADS)
        self._looking = asyncio.Lock()
        self._fresh_until = float("-inf")
        #: The addresses of each server by its last good look-up, and the servers without one.
        self._found: dict[tuple[str, int], egressrules.Own] = {}
        self._unknown: frozenset[tuple[str, int]] = frozenset()
        self.known: egressrules.Own = frozenset()

    async def refresh(self) -> None:
        """Look the addresses up again if they are stale; raises Unready."""
        servers = frozenset(self._servers())
        if not self._is_fresh(servers):
            if self._looking.locked() and servers <= self._found.keys():
                return  # the stale addresses serve while another call looks them up
            async with self._looking:
                if not self._is_fresh(servers):
                    await self._resolve(servers)
        if not servers <= self._found.keys():
            # Authors of Schedules read this and must not learn where our Redis is; the log says it.
            raise Unready("the allowed addresses cannot be determined now")

    def close(self) -> None:
        """Release the threads; those that hang end by themselves."""
        self._lookups.close()

    def _is_fresh(self, servers: frozenset[tuple[str, int]]) -> bool:
        is_young = asyncio.get_running_loop().time() < self._fresh_until
        return is_young and servers <= self._found.keys() | self._unknown

    async def _resolve(self, servers: frozenset[tuple[str, int]]) -> None:
        found = await asyncio.gather(*(self._addresses(host, port) for host, port in servers))
        self._found |= {
            server: its_addresses
            for server, its_addresses in zip(servers, found, strict=True)
            if its_addresses is not None
        }
        self.known = frozenset[Any]().union(*self._found.values())
        missed, self._unknown = self._unknown, servers - self._found.keys()
        if self._unknown - missed:
            _logger.warning("own servers cannot be looked up", servers=sorted(self._unknown))
        seconds = _RETRY_SECONDS if self._unknown else _FRESH_SECONDS
        self._fresh_until = asyncio.get_running_loop().time() + seconds

    async def _addresses(self, host: str, port: int) -> egressrules.Own | None:
        """Return a server's addresses; None if the look-up failed."""
        try:
            async with asyncio.timeout(_OWN_LOOKUP_SECONDS):
                is_address = addresses.parse(host) is not None
                texts = (host,) if is_address else await self._lookups.addresses(host, port, "")
        except socket.gaierror as error:
            return frozenset() if error.errno in _NO_SUCH_NAME else None
        except OSError:  # TimeoutError included
            return None
        parsed = (addresses.parse(text) for text in texts)
        return frozenset(
            (address, port) for each in parsed if each for address in addresses.reached_by(each)
        )


def own_servers(redis_url: str, *urls: str) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports of our servers' URLs, without those that have no host (``unix:``)."""
    usual = {"http": 80, "https": 443}
    parts = (urllib.parse.urlsplit(url) for url in urls)
    hosts = (
        (part.hostname, part.port or usual.get(part.scheme, 0)) for part in parts if part.hostname
    )
    return (*redisurl.parse(redis_url).hosts, *hosts)


# -- the Pod's networks --------------------------------------------------------------------------

#: Addresses for documentation: they choose a route, and nothing is sent. A node's usual share.
_ROUTES = (
    (socket.AF_INET, "192.0.2.1", 24),
    (socket.AF_INET6, "2001:db8::1", 64),
)


def pod_networks(environment: Mapping[str, str] = os.environ) -> tuple[addresses.Network, ...]:
    """Return the networks of the Pod that this process runs in; empty outside a cluster."""
    found = []
    for family, target, length in _ROUTES if environment.get("KUBERNETES_SERVICE_HOST") else ():
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            own = probe.getsockname()[0].partition("%")[0]
            found.append(ipaddress.ip_network(f"{own}/{length}", strict=False))
    return tuple(found)
