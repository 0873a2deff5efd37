"""The webhook target: one slot, one HTTP request, bounded in every direction.

Owns the steps of a delivery, its time limits, and what all deliveries of a webhook share: its
destination (``endpoints``) and its credentials (``credentials``). ``request`` composes the request.
``duepoint.net`` checks the egress rules, sends it and reads the response. ``response`` turns the
response into an outcome.

Nothing is sent after the lease has ended, and waiting for a connection counts towards that. A
delivery checks its receiver's circuit, then reads what it needs, then takes a place. Every attempt
of a slot has the same ``webhook-id``; the timestamp is the attempt's own.

``Preparer`` caches what the deliveries of one webhook have in common: destination, credentials,
endpoint and request head depend on the action and on the API server's answers, not on the slot.
The first delivery prepares them and later ones reuse them. Those for a plain URL stay while the
cache has room. Those with a Secret or a Service stay for two seconds, or until one of them fails. A
delivery that finds everything in the cache waits for nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import msgspec
import prometheus_client

from duepoint import clock as clocks
from duepoint import shares, telemetry
from duepoint.net import dialling, httpclient
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import endpoints, target
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import admission as admissions
from duepoint.targets.webhook import credentials, request, response

#: Statuses that may mean that a Secret has changed since it was read.
_UNWELCOME = frozenset({401, 403})
#: Only the status line decides, so the rest of a longer body is not read.
BODY_RULE = httpclient.BodyRule(most_bytes=64 * 1024, is_optional=True)
#: How long the pool keeps an idle connection.
_KEEP_SECONDS = 15.0


class WebhookTarget:
    """Sends webhooks. ``close`` it when no delivery is in flight any more.

    Args:
        on_reply: receives each answer with its text, for a person who tries a webhook; outcomes
            never hold that text.
    """

    def __init__(
        self,
        dialler: dialling.Dialler,
        services: endpoints.ServiceCache,
        source: credentials.Vault,
        clock: clocks.Clock,
        *,
        admission: admissions.Admission | None = None,
        tls: ssl.SSLContext | None = None,
        on_reply: Callable[[httpclient.Response], None] | None = None,
    ) -> None:
        self._dialler = dialler
        self._pool = httpclient.Pool(dialler.open, keep_seconds=_KEEP_SECONDS)
        self._on_reply = on_reply
        self._preparer = Preparer(services, source, tls, clock)
        self._source = source
        self._clock = clock
        self._admission = admission or admissions.Admission(clock)

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Send the webhook; delivered once the receiver's status line says so."""
        seconds = target.seconds_left_at(firing, self._clock.monotonic())
        if seconds <= 0:
            return target.not_started()
        ready = self._preparer.at_hand(firing)
        if ready is None:
            webhook = cast("actions.WebhookAction", firing.action.target)
            now_us = self._clock.now_us()
            if (refused := await self._admission.refusal(firing, webhook, now_us)) is not None:
                return refused
            begun = self._clock.monotonic()
            prepared = await self._preparer.read(firing, seconds)
            if isinstance(prepared, target.Trouble):
                return self._judged(prepared, firing, begun)
            ready = prepared
        entry = self._admission.at_once(firing, ready.webhook)
        if entry is None:
            found = await self._admission.enter(firing, ready.webhook, self._clock.now_us())
            if not isinstance(found, admissions.Admitted):
                return found
            entry = found
        is_well: bool | None = None
        cause = ""
        try:
            begun = self._clock.monotonic()
            seconds = target.seconds_left_at(firing, begun)
            if seconds <= 0:  # it got its place too late
                return target.not_started()
            answer = await self._send(firing, ready, seconds, begun)
            given = self._judged(answer, firing, begun)
            cause = given.message
            is_well = admissions.verdict(answer, delivered=isinstance(given, outcome.Delivered))
        finally:
            self._admission.leave(entry, firing, is_well, cause)
        if isinstance(given, outcome.Rejected) and given.reason is Reason.ENDPOINT_GONE:
            self._admission.note_gone(firing)
        return given

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        """Return the trouble with the Secrets that the webhook refers to; sends nothing."""
        webhook = cast("actions.WebhookAction", firing.action.target)
        if not webhook.needs_secrets:
            return None
        found = await self._source.of(firing.namespace, webhook)
        return found if isinstance(found, target.Trouble) else None

    async def close(self) -> None:
        """Close the connections and the dialler, and report the circuits' last changes."""
        await self._admission.close()
        self._pool.close()
        await self._dialler.close()

    # -- the request -------------------------------------------------------------------------------

    async def _send(
        self, firing: target.Firing, ready: Prepared, seconds: float, begun: float
    ) -> response.Answer | target.Trouble:
        """Send the request; return the answer, or why there is none."""
        host = ready.endpoint.host
        try:
            received = await self._pool.send(self._call(firing, ready, seconds, begun))
        except httpclient.ConnectionLate:
            is_tls = ready.endpoint.tls is not None
            return response.no_connection(host, seconds, is_tls=is_tls)
        except TimeoutError:
            return response.no_answer(seconds)
        except (OSError, ValueError) as error:
            return response.trouble(error, host)
        if ready.asked.needs_secrets and received.status in _UNWELCOME:
            self._preparer.forget_credentials(firing.namespace)
        if self._on_reply is not None:
            self._on_reply(received)
        return response.Answer(
            status=received.status, retry_after=received.headers.get("retry-after")
        )

    def _call(
        self, firing: target.Firing, ready: Prepared, seconds: float, begun: float
    ) -> httpclient.Call:
        """Return a call that connects before the lease ends and is over within ``seconds``."""
        left = firing.not_after_monotonic - begun
        now = asyncio.get_running_loop().time()
        composed = ready.composer.compose(firing, self._clock.now_us())
        return httpclient.Call(
            endpoint=ready.endpoint,
            content=httpclient.request_bytes(ready.head, composed.own, composed.body),
            deadline=now + seconds,
            connect_by=now + min(seconds, left),
            rule=BODY_RULE,
            # Timers of the loop do not run while the machine is suspended; this clock does.
            may_send=lambda: self._clock.monotonic() < firing.not_after_monotonic,
        )

    def _judged(
        self, answer: response.Answer | target.Trouble, firing: target.Firing, begun: float
    ) -> outcome.Outcome:
        """Return the outcome of an attempt that began at this monotonic instant; count it."""
        _attempts(answer.code_class).inc()
        telemetry.webhook_seconds.observe(self._clock.monotonic() - begun)
        webhook = cast("actions.WebhookAction", firing.action.target)
        if isinstance(answer, target.Trouble):
            self._preparer.forget_service(firing.namespace, webhook)
        return response.judge(answer, webhook, now_us=self._clock.now_us(), due_us=firing.due_us)


@functools.cache
def _attempts(code_class: str) -> prometheus_client.Counter:
    return telemetry.webhook_attempts_total.labels(code_class)


# -- what deliveries have in common ----------------------------------------------------------------

#: Bound of the cache, and cost of one webhook in it besides twice the head of its requests.
_MOST_BYTES = 8 << 20
_ENTRY_BYTES = 3 << 10
#: For this long, a burst of deliveries shares what the first of them read.
_TOGETHER_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a delivery needs.

    Attributes:
        asked: the webhook as the action has it; the reference keeps its ``id()`` from being reused.
        webhook: the same, with the URL filled in if it comes from a Secret.
        until: stale from this monotonic instant on.
        head: the request head, with every header that all deliveries share.
    """

    asked: actions.WebhookAction
    webhook: actions.WebhookAction
    until: float
    endpoint: httpclient.Endpoint
    composer: request.Composer
    head: bytes


class Preparer:
    """Prepares deliveries and caches the results; each worker has one.

    Args:
        tls: replaces the system's authorities.
    """

    def __init__(
        self,
        known_services: endpoints.ServiceCache,
        source: credentials.Vault,
        tls: ssl.SSLContext | None,
        clock: clocks.Clock,
    ) -> None:
        self._services = known_services
        self._source = source
        self._tls = tls
        self._clock = clock
        #: By the webhook's ``id()``.
        self._prepared: shares.BytesCache[int, Prepared] = shares.BytesCache(_MOST_BYTES)
        #: How often something was forgotten because it did not work.
        self._forgotten = 0

    def at_hand(self, firing: target.Firing) -> Prepared | None:
        """Return what a delivery needs if all of it is cached and fresh."""
        known = self._prepared.get(firing.namespace, id(firing.action.target))
        return known if known is not None and self._clock.monotonic() < known.until else None

    async def read(self, firing: target.Firing, seconds: float) -> Prepared | target.Trouble:
        """Read what a delivery needs within ``seconds``; return it, or what is missing."""
        namespace, asked = firing.namespace, cast("actions.WebhookAction", firing.action.target)
        kept: credentials.WebhookCredentials | None = None
        forgotten = self._forgotten
        try:
            async with asyncio.timeout(seconds):
                if asked.needs_secrets:
                    found = await self._source.of(namespace, asked)
                    if isinstance(found, target.Trouble):
                        return found
                    kept = found
                where = await endpoints.locate(self._services, namespace, _with_url(asked, kept))
        except TimeoutError:  # the API server's fault; the receiver was not called
            message = f"nothing was sent: the API server did not answer in {seconds:.3g} s"
            return references.unread(Reason.API_UNAVAILABLE, message)
        if isinstance(where, endpoints.Destination):
            made = self._made(namespace, asked, kept, where)
            # If anything was forgotten meanwhile, this may include it: do not cache it.
            if isinstance(made, Prepared) and forgotten == self._forgotten:
                self._prepared.put(namespace, id(asked), made, _ENTRY_BYTES + 2 * len(made.head))
            return made
        if asked.url_secret is not None:
            message = f"the URL in Secret {asked.url_secret.name} cannot be called"
            return dataclasses.replace(where, message=message)  # the original repeats the URL
        return where

    def forget_credentials(self, namespace: str) -> None:
        """Read the credentials of this namespace again next time, because they did not work."""
        self._forgotten += 1
        self._prepared.drop_all(namespace)
        self._source.forget(namespace)

    def forget_service(self, namespace: str, webhook: actions.WebhookAction) -> None:
        """Look the webhook's Service up again next time, because its endpoints did not work."""
        if webhook.service is not None:
            self._forgotten += 1
            self._prepared.drop(namespace, id(webhook))
            self._services.forget(namespace, webhook.service.name)

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
            head = httpclient.request_head(
                asked.method, where.url.raw_path_qs, [("Host", host), *composer.common]
            )
        except ValueError as error:
            return response.trouble(error, where.host)
        is_read = asked.needs_secrets or asked.service is not None
        return Prepared(
            asked=asked,
            webhook=_with_url(asked, kept),
            until=self._clock.monotonic() + _TOGETHER_SECONDS if is_read else math.inf,
            endpoint=self._endpoint(namespace, asked, kept, where),
            composer=composer,
            head=head,
        )

    def _endpoint(
        self,
        namespace: str,
        webhook: actions.WebhookAction,
        kept: credentials.WebhookCredentials | None,
        where: endpoints.Destination,
    ) -> httpclient.Endpoint:
        tls, server_name = None, where.server_name
        if where.url.scheme == "https":
            tls = self._tls or dialling.public_tls()
            if kept is not None and kept.tls is not None:
                tls = kept.tls
                server_name = (webhook.tls.server_name if webhook.tls else None) or server_name
        return httpclient.Endpoint(
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
