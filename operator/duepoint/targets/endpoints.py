"""Where a webhook goes: a URL as it is written, or a Service of the Schedule's namespace.

Turns ``url`` or ``service`` into a ``Destination``: the URL to call, the host to judge, and what
the egress guard must know. A Service is looked up by the API server's word, never by DNS; what is
dialled are its addresses, what is named in Host, SNI and the certificate is
``<name>.<namespace>.svc``. Owns what becomes of Services that cannot be called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import yarl

from duepoint import errors
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import answers, egressrules


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A Service that can be called.

    Attributes:
        endpoints: (address, port) pairs to dial: its ClusterIP, or its ready endpoints.
        vouched: whether Kubernetes keeps the endpoints (the Service has a selector).
    """

    endpoints: tuple[tuple[str, int], ...]
    vouched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """A Service that cannot be called; ``final`` where it is of a kind that never can."""

    message: str
    final: bool = False


class Services(Protocol):
    """Looks up Services. Raises TryLater where the API server does not answer."""

    async def resolve(
        self, namespace: str, name: str, port: int | str
    ) -> Resolved | Unresolved: ...


async def locate(
    services: Services, namespace: str, webhook: actions.WebhookAction
) -> Destination | answers.Trouble:
    """The destination of a webhook, or why there is none now."""
    if webhook.service is not None:
        return await _of_service(services, namespace, webhook.service)
    return _of_url(webhook.url or "")


def _of_url(text: str) -> Destination | answers.Trouble:
    try:
        url = yarl.URL(text, encoded=True)  # the path goes out as it was written
        host = url.raw_host or ""
    except ValueError as error:
        return _invalid(f"{errors.quoted(text)} cannot be read as a URL: {error}")
    if url.scheme not in ("http", "https") or not host or url.user is not None:
        return _invalid(f"{errors.quoted(text)} is no http or https URL without user names")
    return Destination(url=url, host=host, route=egressrules.Route(scheme=url.scheme))


async def _of_service(
    services: Services, namespace: str, service: actions.ServiceRef
) -> Destination | answers.Trouble:
    called = f"Service {namespace}/{service.name}"
    try:
        found = await services.resolve(namespace, service.name, service.port)
    except errors.TryLater as error:
        return answers.Trouble(
            reason=Reason.API_UNAVAILABLE, message=f"{called} cannot be looked up: {error}"
        )
    if isinstance(found, Unresolved):
        reason = Reason.BLOCKED_ADDRESS if found.final else Reason.NETWORK
        return answers.Trouble(reason=reason, message=found.message, final=found.final)
    return _service_destination(f"{service.name}.{namespace}.svc", service, found)


def _service_destination(name: str, service: actions.ServiceRef, found: Resolved) -> Destination:
    usual = 443 if service.scheme == "https" else 80
    port = service.port if isinstance(service.port, int) else found.endpoints[0][1]
    authority = name if port == usual else f"{name}:{port}"
    return Destination(
        url=yarl.URL(f"{service.scheme}://{authority}{service.path}", encoded=True),
        host=name,
        server_name=name,
        route=egressrules.Route(
            scheme=service.scheme,
            service=True,
            vouched=found.vouched,
            endpoints=found.endpoints,
        ),
    )


def _invalid(message: str) -> answers.Trouble:
    return answers.Trouble(reason=Reason.INVALID_WEBHOOK, message=message, final=True)
