"""Our own addresses, which no tenant may call: Redis, the API server and the Pod's networks.

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
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from duepoint import redisurl
from duepoint.net import addresses, egressrules, lookups

_logger = structlog.get_logger()

#: How long the addresses stay fresh, and how long a look-up may take.
_FRESH_SECONDS = 60.0
_LOOKUP_SECONDS = 2.0
_THREADS = 4
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

    def __init__(self, servers: Servers, ask: lookups.Ask = lookups.ask_system) -> None:
        self._servers = servers
        self._lookups = lookups.Lookups(ask, threads=_THREADS)
        self._looking = asyncio.Lock()
        self._fresh_until = float("-inf")
        #: The addresses of every server that was looked up; None = no look-up was good yet.
        self._found: dict[tuple[str, int], egressrules.Own | None] = {}
        self.known: egressrules.Own = frozenset()

    async def refresh(self) -> None:
        """Look the addresses up again if they are stale; raises Unready."""
        servers = frozenset(self._servers())
        if not self._is_fresh(servers):
            if self._looking.locked() and not self._unknown(servers):
                return  # the stale addresses serve while another call looks them up
            async with self._looking:
                if not self._is_fresh(servers):
                    await self._resolve(servers)
        if self._unknown(servers):
            # Authors of Schedules read this and must not learn where our Redis is; the log says it.
            raise Unready("which addresses are allowed cannot be found out now")

    def close(self) -> None:
        """Release the threads; those that hang end by themselves."""
        self._lookups.close()

    def _is_fresh(self, servers: frozenset[tuple[str, int]]) -> bool:
        is_young = asyncio.get_running_loop().time() < self._fresh_until
        return is_young and servers <= self._found.keys()

    def _unknown(self, servers: frozenset[tuple[str, int]]) -> list[tuple[str, int]]:
        return sorted(server for server in servers if self._found.get(server) is None)

    async def _resolve(self, servers: frozenset[tuple[str, int]]) -> None:
        missed = self._unknown(servers & self._found.keys())
        found = await asyncio.gather(*(self._addresses(host, port) for host, port in servers))
        for server, its_addresses in zip(servers, found, strict=True):
            self._found[server] = (
                self._found.get(server) if its_addresses is None else its_addresses
            )
        self.known = frozenset[Any]().union(*filter(None, self._found.values()))
        unknown = self._unknown(servers)
        if unknown and unknown != missed:
            _logger.warning("own servers cannot be looked up", servers=unknown)
        seconds = _RETRY_SECONDS if unknown else _FRESH_SECONDS
        self._fresh_until = asyncio.get_running_loop().time() + seconds

    async def _addresses(self, host: str, port: int) -> egressrules.Own | None:
        """Return a server's addresses; None if the look-up failed."""
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
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
    return networks() if environment.get("KUBERNETES_SERVICE_HOST") else ()


def networks() -> tuple[addresses.Network, ...]:
    """Return the networks of this machine's addresses."""
    found = []
    for family, target, length in _ROUTES:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            own = probe.getsockname()[0].partition("%")[0]
            found.append(ipaddress.ip_network(f"{own}/{length}", strict=False))
    return tuple(found)
