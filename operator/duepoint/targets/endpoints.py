"""Where a webhook goes: a URL as it is written, or a Service of the Schedule's namespace.

Turns ``url`` or ``service`` into a ``Destination``: the URL to call, the host to judge, and what
the egress guard must know. A Service is looked up by the API server's word, never by DNS; what is
dialled are its addresses, what is named in Host, SNI and the certificate is
``<name>.<namespace>.svc``. Owns what becomes of Services that cannot be called.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

import yarl

from duepoint import errors
from duepoint.kube import errors as kube_errors
from duepoint.kube import services
from duepoint.net import egressrules
from duepoint.schedules import actions, targetspec
from duepoint.schedules.conditions import Reason
from duepoint.targets import troubles


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
    """Looks up Services; ``servicecache.ServiceCache``."""

    async def resolve(
        self, namespace: str, name: str, port: int | str
    ) -> services.Resolved | services.Unresolved:
        """Raises ``kube.errors.ApiError``."""
        ...

    def forget(self, namespace: str, name: str) -> None:
        """What was said of this Service did not work."""
        ...


async def locate(
    known: Services, namespace: str, webhook: actions.WebhookAction
) -> Destination | troubles.Trouble:
    """The destination of a webhook, or why there is none now."""
    if webhook.service is not None:
        return await _of_service(known, namespace, webhook.service)
    return of_url(webhook.url or "")


@functools.lru_cache(maxsize=1024)
def of_url(text: str) -> Destination | troubles.Trouble:
    """The destination that a URL names."""
    try:
        url = yarl.URL(text, encoded=True)  # the path goes out as it was written
        host = url.raw_host or ""
    except ValueError:
        return _invalid(f"{errors.quoted(targetspec.shown(text))} cannot be read as a URL")
    if url.scheme not in ("http", "https") or not host or url.user is not None:
        told = errors.quoted(targetspec.shown(text))
        return _invalid(f"{told} is no http or https URL without user names")
    return Destination(url=url, host=host, route=egressrules.Route(scheme=url.scheme, web=True))


async def _of_service(
    known: Services, namespace: str, service: actions.ServiceRef
) -> Destination | troubles.Trouble:
    try:
        found = await known.resolve(namespace, service.name, service.port)
    except kube_errors.ApiError as error:
        refused = isinstance(error, kube_errors.Forbidden)
        return troubles.Trouble(
            reason=Reason.FORBIDDEN if refused else Reason.API_UNAVAILABLE,
            message=f"Service {namespace}/{service.name} cannot be looked up: {error}",
        )
    if isinstance(found, services.Unresolved):
        final = found.trouble is services.Trouble.EXTERNAL_NAME
        reason = Reason.BLOCKED_ADDRESS if final else Reason.NETWORK
        return troubles.Trouble(reason=reason, message=found.message, final=final)
    return _service_destination(service, found)


def _service_destination(service: actions.ServiceRef, found: services.Resolved) -> Destination:
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


def _invalid(message: str) -> troubles.Trouble:
    return troubles.Trouble(reason=Reason.INVALID_WEBHOOK, message=message, final=True)
