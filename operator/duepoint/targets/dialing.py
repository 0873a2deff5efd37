"""TCP connections of other targets than webhooks, past the same egress guard.

A name is looked up by the guard, every answer is judged, and what is connected to is an address
that was judged: so neither a literal, a rebinding name nor a broker's advertised host gets past.
A host that is a Service of the Schedule's own namespace (``redis``, ``redis.NS.svc``) is asked for
at the API server, as a webhook's ``service`` is.
"""

from __future__ import annotations

import asyncio
import re
import socket

from duepoint.schedules import actions
from duepoint.targets import answers, egress, egressrules, endpoints

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


class Dialer:
    """Opens sockets for what the Schedules of one namespace name."""

    def __init__(self, guard: egress.Guard, services: endpoints.Services, namespace: str) -> None:
        self._guard = guard
        self._services = services
        self._namespace = namespace

    async def connect(self, host: str, port: int, *, tls: bool) -> socket.socket:
        """A connected socket; raises Refused, egress.Blocked and other OSErrors."""
        require_server(host, port)
        route = await self._route(host, port, tls=tls)
        dial = egress.Dial(route=route, namespace=self._namespace)
        token = self._guard.begin(dial)
        try:
            await self._guard.prepare(host, dial)
            found = await self._guard.resolve(host, port)
        finally:
            self._guard.end(token)
        return await _first([(each["host"], each["port"]) for each in found])

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


async def _first(targets: list[tuple[str, int]]) -> socket.socket:
    """Of addresses that were all judged, the first that answers."""
    trouble: OSError = OSError("the name has no address")
    for host, port in targets:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)  # noqa: FBT003 - the only way to say it
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(made, (host, port))
        except OSError as error:  # TimeoutError included
            made.close()
            trouble = error
        except BaseException:
            made.close()
            raise
        else:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
    raise trouble
