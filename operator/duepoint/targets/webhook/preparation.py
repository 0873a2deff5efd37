"""What the deliveries of one webhook have in common: read, made once, and used for a while.

Where the webhook goes, its credentials, its endpoint and the head of its requests depend on the
action and on what the API server says, not on the slot. They are made for the first delivery and
serve the next ones for as long as credentials and Service are the same that would be read now; both
are asked for each delivery, from caches. A URL in a Secret and the endpoints of a Service are then
as good as a URL in the spec: a delivery that finds everything at hand waits for nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from dataclasses import dataclass
from typing import cast

import msgspec

from duepoint import shares
from duepoint.kube import services
from duepoint.net import connections, dialling, http1
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import endpoints, target
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import credentials, request, response

#: Of all that is kept, and of one webhook besides twice the head of its requests.
_MOST_BYTES = 8 << 20
_ENTRY_BYTES = 3 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a delivery needs.

    Attributes:
        asked: the webhook as the action has it; held so that its id stays its own.
        webhook: the same, with its URL where that stands in a Secret.
        kept: None for a webhook that is plain.
        service: where its Service leads; None for a URL.
        head: with every header that is not the delivery's own.
    """

    asked: actions.WebhookAction
    webhook: actions.WebhookAction
    kept: credentials.WebhookCredentials | None
    service: services.ServiceResolved | None
    endpoint: connections.Endpoint
    composer: request.Composer
    head: http1.RequestHead


class Preparer:
    """Prepares deliveries; one for a worker.

    Args:
        tls: in place of the system's authorities.
    """

    def __init__(
        self,
        known_services: endpoints.ServiceCache,
        source: credentials.Vault,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._services = known_services
        self._source = source
        self._tls = tls
        #: By the webhook's id.
        self._prepared: shares.BytesCache[int, Prepared] = shares.BytesCache(_MOST_BYTES)

    def at_hand(self, firing: target.Firing) -> Prepared | None:
        """What a delivery needs, where all of it is known already."""
        namespace, webhook = firing.namespace, cast("actions.WebhookAction", firing.action.target)
        known = self._prepared.get(namespace, id(webhook))
        is_plain = webhook.is_plain if known is None else known.kept is None
        kept = None if is_plain else self._source.at_hand(namespace, webhook)
        if kept is None and not is_plain:
            return None
        service = None
        if webhook.service is not None:
            service = self._services.at_hand(namespace, webhook.service)
            if service is None:
                return None
        if known is not None and known.kept is kept and known.service is service:
            return known
        if webhook.service is not None and service is not None:
            where: endpoints.Destination | target.Trouble
            where = endpoints.of_service(webhook.service, service)
        else:
            where = endpoints.of_url(_with_url(webhook, kept).url or "")
        if isinstance(where, target.Trouble):
            return None
        made = self._made(namespace, webhook, kept, where)
        return None if isinstance(made, target.Trouble) else made

    async def read(self, firing: target.Firing, seconds: float) -> Prepared | target.Trouble:
        """What a delivery needs, read now within so many seconds; or what is missing."""
        namespace, asked = firing.namespace, cast("actions.WebhookAction", firing.action.target)
        kept: credentials.WebhookCredentials | None = None
        try:
            async with asyncio.timeout(seconds):
                if not asked.is_plain:
                    found = await self._source.of(namespace, asked)
                    if isinstance(found, target.Trouble):
                        return found
                    kept = found
                where = await endpoints.locate(self._services, namespace, _with_url(asked, kept))
        except TimeoutError:  # of the API server; the receiver was not asked
            message = f"nothing was sent: the API server did not answer in {seconds:.3g} s"
            return references.unread(Reason.API_UNAVAILABLE, message)
        if isinstance(where, endpoints.Destination):
            return self._made(namespace, asked, kept, where)
        if asked.url_secret is not None:
            message = f"the URL in Secret {asked.url_secret.name} cannot be called"
            return dataclasses.replace(where, message=message)  # theirs repeats the URL
        return where

    def forget_credentials(self, namespace: str) -> None:
        """What was read of this namespace did not work: read it again next time."""
        self._prepared.drop_all(namespace)
        self._source.forget(namespace)

    def forget_service(self, namespace: str, service: actions.ServiceRef) -> None:
        """Where this Service leads did not work: ask anew next time."""
        self._services.forget(namespace, service.name)

    def _made(
        self,
        namespace: str,
        asked: actions.WebhookAction,
        kept: credentials.WebhookCredentials | None,
        where: endpoints.Destination,
    ) -> Prepared | target.Trouble:
        composer = request.Composer(asked, kept)
        host = where.url.host_port_subcomponent or ""
        try:
            head = http1.RequestHead(
                asked.method, where.url.raw_path_qs, [("Host", host), *composer.common]
            )
        except ValueError as error:
            return response.trouble(error, where.host)
        made = Prepared(
            asked=asked,
            webhook=_with_url(asked, kept),
            kept=kept,
            service=None
            if asked.service is None
            else self._services.at_hand(namespace, asked.service),
            endpoint=self._endpoint(namespace, asked, kept, where),
            composer=composer,
            head=head,
        )
        self._prepared.put(namespace, id(asked), made, _ENTRY_BYTES + 2 * len(head))
        return made

    def _endpoint(
        self,
        namespace: str,
        webhook: actions.WebhookAction,
        kept: credentials.WebhookCredentials | None,
        where: endpoints.Destination,
    ) -> connections.Endpoint:
        tls, server_name = None, where.server_name
        if where.url.scheme == "https":
            tls = self._tls or dialling.public_tls()
            if kept is not None and kept.tls is not None:
                tls = kept.tls
                server_name = (webhook.tls.server_name if webhook.tls else None) or server_name
        return connections.Endpoint(
            host=where.host,
            port=where.url.port or 0,
            tls=tls,
            server_name=server_name,
            route=where.route,
            namespace=namespace,
        )


def _with_url(
    webhook: actions.WebhookAction, kept: credentials.WebhookCredentials | None
) -> actions.WebhookAction:
    if kept is None or webhook.url_secret is None:
        return webhook
    return msgspec.structs.replace(webhook, url=kept.url)
