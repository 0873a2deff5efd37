"""The guarded dialler: resolve, judge, connect, agree on TLS. The only way to a tenant's server.

The worker must not be a confused deputy for somebody who may only write Schedules in one
namespace. The rules (``egressrules.verdict``) are asked about every address of every new
connection, and once more where its socket is made, so that neither an IP literal nor a name that
changes its answer gets past them. A name of which one answer is denied is refused as a whole,
before anything is dialled. A kept connection is not judged again (``connections.Endpoint`` says
which calls may share one).
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import aiohappyeyeballs

from duepoint import tlsrules
from duepoint.net import addresses, connections, egressrules, http1, lookups, ownservers

#: After so long the next address is tried beside the one before (RFC 8305).
_NEXT_ADDRESS_SECONDS = 0.25


class Blocked(OSError):
    """The egress rules deny an address; the text says which, and the setting that opens it."""


class Unresolved(OSError):
    """The name has no address, or nothing answered that was asked for it."""


class Dialler:
    """Opens connections within the egress rules; one for a worker.

    Args:
        policy: of this installation.
        own: our Redis and API server; asked again before each new connection, because the nodes of
            a cluster and the primary that Sentinel names are found while the process runs.
        lookup: in place of the system's resolver.
    """

    def __init__(
        self,
        policy: egressrules.Policy,
        own: ownservers.Servers = tuple,
        *,
        lookup: ownservers.Lookup | None = None,
    ) -> None:
        self._policy = policy
        self._lookups = lookups.Lookups()
        self._lookup = lookup
        self._own = ownservers.OwnServers(own, lookup)

    async def open(self, endpoint: connections.Endpoint) -> http1.Connection:
        """An HTTP connection; see ``connect``, besides ssl.SSLError."""
        made = await self.connect(endpoint)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                http1.Connection, sock=made, ssl=endpoint.tls, server_hostname=endpoint.tls_name
            )
        except BaseException:
            made.close()
            raise
        return connection

    async def connect(self, endpoint: connections.Endpoint) -> socket.socket:
        """A connected socket, for TLS or not.

        Raises:
            Blocked: an address is denied.
            ownservers.Unready: none can be judged now.
            Unresolved: there is no address.
            OSError: none of the addresses answered.
        """
        await self._own.refresh()
        route = endpoint.route
        if route is None:
            raise Blocked("a connection was about to be opened past the egress rules")
        if addresses.is_odd_number(endpoint.host):
            raise Blocked(f"{endpoint.host!r} is a number; write a host name or a plain IP address")
        targets = route.endpoints or await self._resolved(endpoint)
        for address, port in targets:
            self._check(address, port, route)
        made = await aiohappyeyeballs.start_connection(
            [_address_info(address, port) for address, port in targets],
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            socket_factory=functools.partial(self._socket, route),
        )
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    async def close(self) -> None:
        """Let go of the look-up threads; those that hang end by themselves."""
        self._lookups.close()
        self._own.close()

    async def _resolved(self, endpoint: connections.Endpoint) -> Sequence[tuple[str, int]]:
        host, port = endpoint.host, endpoint.port
        if addresses.parse(host) is not None:
            return [(host, port)]
        try:
            if self._lookup is not None:
                found = await self._lookup(host, port)
            else:
                found = await self._lookups.addresses(host, port, endpoint.namespace)
        except OSError as error:
            raise Unresolved(f"{host} cannot be resolved: {error}") from error
        if not found:
            raise Unresolved(f"{host} has no address")
        return [(address, port) for address in found]

    def _socket(self, route: egressrules.Route, info: Any) -> socket.socket:  # noqa: ANN401 - five shapes
        """The last look: this address is what ``connect`` will be called with."""
        family, kind, protocol, _, target = info
        self._check(str(target[0]), int(target[1]), route)
        return socket.socket(family, kind, protocol)

    def _check(self, address: str, port: int, route: egressrules.Route) -> None:
        judged = egressrules.verdict(address, port, self._policy, route, self._own.known)
        if isinstance(judged, egressrules.Denied):
            raise Blocked(judged.reason)


@functools.cache
def public_tls() -> ssl.SSLContext:
    """Trusts the authorities of the system; one for all, because reading them takes 20 ms."""
    context = tlsrules.client_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _address_info(address: str, port: int) -> tuple[Any, ...]:
    """As ``socket.getaddrinfo`` gives it."""
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
