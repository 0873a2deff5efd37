"""Where a webhook goes: a URL as it is written, or a Service of the Schedule's namespace.

Turns ``url`` or ``service`` into a ``Destination``: the URL to call, the host to judge, and what
the egress guard must know. A Service is looked up by the API server's word, never by DNS; what is
dialled are its addresses, what is named in Host, SNI and the certificate is
``<name>.<namespace>.svc``. Owns what becomes of Services that cannot be called.

Reading a Service for every delivery would cost the API server a request per webhook. So its answer
is believed for a minute (``ServiceCache``); while it does not answer, for an hour, because webhooks
go on firing through its outages. An answer that did not work is forgotten at once. Deliveries that
miss at the same time share one look-up.
"""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import yarl

from duepoint import clock as clocks
from duepoint import errors
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, services
from duepoint.net import egressrules
from duepoint.schedules import actions, targetspec
from duepoint.schedules.conditions import Reason
from duepoint.targets import target

Found = services.ServiceResolved | services.ServiceUnresolved
FRESH_SECONDS = 60.0
STALE_SECONDS = 3600.0
#: How long the API server may take, and is then left alone while an old answer serves.
LOOK_SECONDS = 5.0
#: Services remembered; the one not asked for the longest goes first.
MOST_KNOWN = 4096

#: namespace, name, port -> what the API server says; raises ``kube.errors.ApiError``.
Look = Callable[[str, str, int | str], Awaitable[Found]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What to call.

    Attributes:
        host: the URL's host, without brackets.
        server_name: name to verify in place of the host; None = the host.
    """

    url: yarl.URL
    host: str
    route: egressrules.Route
    server_name: str | None = None


class Services(Protocol):
    """Looks up Services: ``ServiceCache``, or a test's own."""

    async def resolve(self, namespace: str, name: str, port: int | str) -> Found:
        """Raises ``kube.errors.ApiError``."""
        ...

    def forget(self, namespace: str, name: str) -> None:
        """What was said of this Service did not work."""
        ...


async def locate(
    known: Services, namespace: str, webhook: actions.WebhookAction
) -> Destination | target.Trouble:
    """The destination of a webhook, or why there is none now."""
    if webhook.service is not None:
        return await _of_service(known, namespace, webhook.service)
    return of_url(webhook.url or "")


@functools.lru_cache(maxsize=1024)
def of_url(text: str) -> Destination | target.Trouble:
    """The destination that a URL names."""
    try:
        url = yarl.URL(text, encoded=True)  # the path goes out as it was written
        host = url.raw_host or ""
    except ValueError:
        return _invalid(f"{errors.quoted(targetspec.shown(text))} cannot be read as a URL")
    if url.scheme not in ("http", "https") or not host or url.user is not None:
        quoted = errors.quoted(targetspec.shown(text))
        return _invalid(f"{quoted} is no http or https URL without user names")
    return Destination(url=url, host=host, route=egressrules.Route(scheme=url.scheme, web=True))


async def _of_service(
    known: Services, namespace: str, service: actions.ServiceRef
) -> Destination | target.Trouble:
    try:
        found = await known.resolve(namespace, service.name, service.port)
    except kube_errors.ApiError as error:
        refused = isinstance(error, kube_errors.Forbidden)
        return target.Trouble(
            reason=Reason.FORBIDDEN if refused else Reason.API_UNAVAILABLE,
            message=f"Service {namespace}/{service.name} cannot be looked up: {error}",
        )
    if isinstance(found, services.ServiceUnresolved):
        final = found.trouble is services.ServiceTrouble.EXTERNAL_NAME
        reason = Reason.BLOCKED_ADDRESS if final else Reason.NETWORK
        return target.Trouble(reason=reason, message=found.message, final=final)
    return _service_destination(service, found)


def _service_destination(
    service: actions.ServiceRef, found: services.ServiceResolved
) -> Destination:
    usual = 443 if service.scheme == "https" else 80
    port = service.port if isinstance(service.port, int) else found.addresses[0].port
    name = found.server_name
    authority = name if port == usual else f"{name}:{port}"
    return Destination(
        url=yarl.URL(f"{service.scheme}://{authority}{service.path}", encoded=True),
        host=name,
        server_name=name,
        route=egressrules.Route(
            scheme=service.scheme,
            service=True,
            vouched=found.vouched,
            endpoints=tuple((address.host, address.port) for address in found.addresses),
        ),
    )


def _invalid(message: str) -> target.Trouble:
    return target.Trouble(reason=Reason.INVALID_WEBHOOK, message=message, final=True)


@dataclass(slots=True)
class _Known:
    """The last good answer, and the lock of the caller that asks for a newer one."""

    resolved: services.ServiceResolved | None = None
    read_at: float = 0.0
    ask_at: float = float("-inf")
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class ServiceCache:
    """Resolves Services with a memory."""

    def __init__(self, look: Look, clock: clocks.Clock) -> None:
        self._look = look
        self._clock = clock
        self._known: collections.OrderedDict[tuple[str, str], dict[int | str, _Known]] = (
            collections.OrderedDict()
        )

    async def resolve(self, namespace: str, name: str, port: int | str) -> Found:
        """Where the Service leads; raises ``kube.errors.ApiError`` where nothing is known."""
        known = self._entry(namespace, name, port)
        async with known.asking:
            if known.resolved is not None and self._clock.monotonic() < known.ask_at:
                return known.resolved
            return await self._ask(known, namespace, name, port)

    def forget(self, namespace: str, name: str) -> None:
        """Ask anew next time, for every port; the last answer serves until then."""
        for known in self._known.get((namespace, name), {}).values():
            known.ask_at = float("-inf")

    async def _ask(self, known: _Known, namespace: str, name: str, port: int | str) -> Found:
        try:
            found = await self._look(namespace, name, port)
        except kube_errors.Unavailable:
            now = self._clock.monotonic()
            if known.resolved is None or now - known.read_at >= STALE_SECONDS:
                raise
            known.ask_at = now + LOOK_SECONDS
            return known.resolved
        known.resolved = found if isinstance(found, services.ServiceResolved) else None
        known.read_at = self._clock.monotonic()
        known.ask_at = known.read_at + FRESH_SECONDS
        return found

    def _entry(self, namespace: str, name: str, port: int | str) -> _Known:
        ports = self._known.setdefault((namespace, name), {})
        self._known.move_to_end((namespace, name))
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return ports.setdefault(port, _Known())


def service_cache(api: port.Api, clock: clocks.Clock) -> ServiceCache:
    """A cache of what this API server says."""

    async def look(namespace: str, name: str, wanted: int | str) -> Found:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await services.resolve(api, namespace, name, wanted)
        except TimeoutError as error:
            raise kube_errors.Unavailable(
                f"GET Service {namespace}/{name}: no answer in {LOOK_SECONDS:g} s"
            ) from error

    return ServiceCache(look, clock)
