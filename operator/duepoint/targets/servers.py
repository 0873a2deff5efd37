"""Connections to the servers that a Secret names: another Redis, Kafka's brokers.

They go through the guarded dialler. A host that is a Service of the Schedule's own namespace
(``redis``, ``redis.NS.svc``) is looked up at the API server, as a webhook's ``service`` is.
"""

from __future__ import annotations

import asyncio
import re
import socket

from duepoint.net import connections, dialling, egressrules
from duepoint.schedules import actions
from duepoint.targets import answers, endpoints

#: How long one address may take to answer.
CONNECT_SECONDS = 5.0

#: What a name or an address of a server is made of.
_HOST = re.compile(r"[\w.:%-]{1,253}")
_MAX_PORT = 65_535
_SUFFIXES = ("", ".svc", ".svc.cluster.local")


class Refused(OSError):
    """The guard, or the Service, says that this may not or cannot be connected to.

    Attributes:
        trouble: why; ``final`` where only an edit or the operator's settings help.
    """

    def __init__(self, trouble: answers.Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def require_server(host: str, port: int) -> None:
    """Raise OSError unless these are a name and a port that could be a server's.

    A server that names others (a node of a Redis Cluster, a broker) may write any text there; the
    error does not repeat it, and messages name only what passes here.
    """
    if not _HOST.fullmatch(host) or not 1 <= port <= _MAX_PORT:
        raise OSError("the server that it names has no name, or no port from 1 to 65535")


class ServerDialler:
    """Opens sockets for what the Schedules of one namespace name."""

    def __init__(
        self, dialler: dialling.Dialler, services: endpoints.Services, namespace: str
    ) -> None:
        self._dialler = dialler
        self._services = services
        self._namespace = namespace

    async def connect(self, host: str, port: int, *, tls: bool) -> socket.socket:
        """A connected socket; raises Refused, dialling.Blocked and other OSErrors."""
        require_server(host, port)
        endpoint = connections.Endpoint(
            host=host,
            port=port,
            route=await self._route(host, port, tls=tls),
            namespace=self._namespace,
        )
        async with asyncio.timeout(connections.CONNECT_SECONDS):
            return await self._dialler.connect(endpoint)

    async def _route(self, host: str, port: int, *, tls: bool) -> egressrules.Route:
        scheme = "https" if tls else "http"
        name = self._service_of(host)
        if name is None:
            return egressrules.Route(scheme=scheme)
        service = actions.ServiceRef(name=name, port=port, scheme=scheme)
        webhook = actions.WebhookAction(service=service)
        located = await endpoints.locate(self._services, self._namespace, webhook)
        if isinstance(located, answers.Trouble):
            raise Refused(located)
        return located.route

    def _service_of(self, host: str) -> str | None:
        """The Service of this namespace that the host names, if it does."""
        name, dot, rest = host.lower().rstrip(".").partition(".")
        if not dot and not name.replace(".", "").isdecimal() and ":" not in name:
            return name if name != "localhost" else None
        ours = {f"{self._namespace}{suffix}" for suffix in _SUFFIXES}
        return name if rest in ours else None
