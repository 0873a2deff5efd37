"""Destinations of webhooks: a URL as written, or a Service of the Schedule's namespace.

Turns ``url`` or ``service`` into a ``Destination``: the URL to call, the host to judge, and the
facts for the egress guard. Services are looked up at the API server, never in DNS. The worker dials
the Service's addresses; Host, SNI and the certificate name ``<name>.<namespace>.svc``. This module
also decides the outcome for Services that cannot be called.

Reading a Service for every delivery would cost the API server a request per webhook. So its answer
is fresh for a minute (``memory``), and usable for an hour while the API server is away, because
webhooks must keep firing through its outages. An answer that did not work is forgotten at once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import yarl

from duepoint import clock as clocks
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, services
from duepoint.model import webhook as model
from duepoint.net import egressrules
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import memory, target

#: Approximate memory that one address of a Service takes.
_ADDRESS_BYTES = 200

Found = services.ServiceResolved | services.ServiceUnresolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where to send a webhook.

    Attributes:
        host: the URL's host, without brackets.
        server_name: name to verify in the certificate; None = the host.
    """

    url: yarl.URL
    host: str
    route: egressrules.Route
    server_name: str | None = None


async def locate(
    cache: ServiceCache, namespace: str, webhook: actions.WebhookAction
) -> Destination | target.Trouble:
    """Return the destination of a webhook, or why there is none now."""
    service = webhook.service
    if service is None:
        return of_url(webhook.url or "")
    try:
        found = await cache.get(namespace, (service.name, service.port))
    except kube_errors.ApiError as error:
        refused = isinstance(error, kube_errors.Forbidden)
        return target.Trouble(
            reason=Reason.FORBIDDEN if refused else Reason.API_UNAVAILABLE,
            message=f"Service {namespace}/{service.name} cannot be looked up: {error}",
            unsent=not refused,
        )
    if isinstance(found, services.ServiceUnresolved):
        final = not found.may_heal
        reason = Reason.BLOCKED_ADDRESS if final else Reason.NETWORK
        return target.Trouble(reason=reason, message=found.message, final=final)
    return of_service(service, found)


@functools.lru_cache(maxsize=1024)
def of_url(text: str) -> Destination | target.Trouble:
    """Return the destination of a URL."""
    try:
        url = yarl.URL(text, encoded=True)  # the path goes out as it was written
        host = url.raw_host or ""
    except ValueError:
        return _invalid(f"{model.shown(text)} cannot be read as a URL")
    if url.scheme not in ("http", "https") or not host or url.user is not None:
        quoted = model.shown(text)
        return _invalid(f"{quoted} is not an http or https URL without user names")
    return Destination(url=url, host=host, route=egressrules.Route(scheme=url.scheme, web=True))


def of_service(service: actions.ServiceRef, found: services.ServiceResolved) -> Destination:
    """Return the destination of a resolved Service."""
    usual = 443 if service.scheme == "https" else 80
    port = service.port if isinstance(service.port, int) else found.addresses[0][1]
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
            endpoints=found.addresses,
        ),
    )


def _invalid(message: str) -> target.Trouble:
    return target.Trouble(reason=Reason.INVALID_SPEC, message=message, final=True)


ServiceCache = memory.Memory[tuple[str, int | str], Found]
"""Key: the Service's name, and the number or name of its port."""


def service_cache(api: port.Api, clock: clocks.Clock) -> ServiceCache:
    """Return a cache of Services; those that cannot be called are looked up each time."""

    async def look(namespace: str, key: tuple[str, int | str]) -> memory.Life[Found]:
        found = await services.resolve(api, namespace, *key)
        if isinstance(found, services.ServiceResolved):
            return memory.Life(value=found, size=_ADDRESS_BYTES * (1 + len(found.addresses)))
        return memory.Life(value=found, fresh_seconds=0.0, usable_seconds=0.0, size=0)

    return memory.Memory(look, clock)
