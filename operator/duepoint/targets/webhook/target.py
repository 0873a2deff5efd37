"""The webhook target: one slot, one HTTP request, bounded in every direction.

Owns the steps of a delivery, its time limits, and what all deliveries of a webhook share: its
destination (``endpoints``) and its credentials (``credentials``). ``request`` composes the request.
``duepoint.net`` checks the egress rules, sends it and reads the response. ``response`` turns the
response into an outcome.

Nothing is sent after the lease has ended, and waiting for a connection counts towards that. A
delivery checks its receiver's circuit, then reads what it needs, then takes a place. Every attempt
of a slot has the same ``webhook-id``; the timestamp is the attempt's own.

``Prepared`` is what the deliveries of one webhook have in common: destination, credentials,
endpoint and request head depend on the action and on the API server's answers, not on the slot.
The first delivery prepares it and later ones reuse it. For a plain URL it stays while the cache has
room. With a Secret or a Service it stays for two seconds, or until a delivery fails. A delivery
that finds it in the cache waits for nothing.
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
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import endpoints, outcome, target
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import admission as admissions
from duepoint.targets.webhook import credentials, request, response

#: Statuses that may mean that a Secret has changed since it was read.
_UNWELCOME = frozenset({401, 403})
#: Only the status line decides, so the rest of a longer body is not read.
BODY_RULE = httpclient.BodyRule(most_bytes=64 * 1024, is_optional=True)
#: How long the pool keeps an idle connection.
_KEEP_SECONDS = 15.0
#: Bound of the cache, and cost of one webhook in it besides twice the head of its requests.
_MOST_BYTES = 8 << 20
_ENTRY_BYTES = 3 << 10
#: For this long, a burst of deliveries shares what the first of them read.
_TOGETHER_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What all deliveries of one webhook share.

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


class WebhookTarget:
    """Sends webhooks. ``close`` it when no delivery is in flight any more.

    Args:
        tls: replaces the system's authorities.
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
        self._services = services
        self._source = source
        self._clock = clock
        self._admission = admission or admissions.Admission(clock)
        self._tls = tls
        self._on_reply = on_reply
        #: By the webhook's ``id()``.
        self._prepared: shares.BytesCache[int, Prepared] = shares.BytesCache(_MOST_BYTES)

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Send the webhook; delivered once the receiver's status line says so."""
        admitted = await self._admitted(firing)
        if not isinstance(admitted, tuple):
            return admitted
        ready, entry, seconds, begun = admitted
        answer: httpclient.Response | target.Trouble | None = None
        given: outcome.Outcome | None = None
        try:
            answer = await self._send(firing, ready, seconds)
            given = self._judged(answer, firing, begun)
        finally:
            self._admission.leave(entry, firing, answer, given)
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

    async def _admitted(
        self, firing: target.Firing
    ) -> tuple[Prepared, admissions.Admitted, float, float] | outcome.Outcome:
        """Prepare a delivery and give it a place, or return why it is not sent.

        Returns also the seconds it may take, and the monotonic instant from which they count.
        """
        begun = self._clock.monotonic()
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        webhook = cast("actions.WebhookAction", firing.action.target)
        ready = self._prepared.get(firing.namespace, id(webhook))
        if ready is None or begun >= ready.until:
            if (refused := await self._admission.refusal(firing, webhook)) is not None:
                return refused
            made = await self._prepare(firing.namespace, webhook, seconds)
            if isinstance(made, target.Trouble):
                return self._judged(made, firing, begun)
            ready = made
        entry = await self._admission.enter(firing, ready.webhook)
        if not isinstance(entry, admissions.Admitted):
            return entry
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:  # it got its place too late
            self._admission.leave(entry, firing, None, None)
            return target.not_started()
        return ready, entry, seconds, self._clock.monotonic()

    # -- the request -------------------------------------------------------------------------------

    async def _send(
        self, firing: target.Firing, ready: Prepared, seconds: float
    ) -> httpclient.Response | target.Trouble:
        """Send the request, over within ``seconds``; return the answer, or why there is none."""
        host = ready.endpoint.host
        left = firing.not_after_monotonic - self._clock.monotonic()
        now = asyncio.get_running_loop().time()
        try:
            received = await self._pool.send(
                ready.endpoint,
                self._content(firing, ready),
                deadline=now + seconds,
                connect_by=now + min(seconds, left),  # before the lease ends
                rule=BODY_RULE,
                may_send=functools.partial(self._has_lease, firing),
            )
        except httpclient.ConnectionLate:
            kind = "connection" if ready.endpoint.tls is None else "TLS connection"
            within = min(seconds, httpclient.CONNECT_SECONDS)
            return response.late(f"no {kind} to {host} within {within:.3g} s")
        except TimeoutError:
            return response.late(f"no answer within {seconds:.3g} s")
        except (OSError, ValueError) as error:
            return response.trouble(error, host)
        if ready.asked.needs_secrets and received.status in _UNWELCOME:
            self._prepared.drop_all(firing.namespace)
            self._source.forget(firing.namespace)
        if self._on_reply is not None:
            self._on_reply(received)
        return received

    def _content(self, firing: target.Firing, ready: Prepared) -> bytes:
        """Return the request, signed at this instant."""
        own, body = ready.composer.compose(firing, self._clock.now_us())
        return httpclient.request_bytes(ready.head, own, body)

    def _has_lease(self, firing: target.Firing) -> bool:
        """Whether the lease still lasts. Timers of the loop stop while the machine is suspended."""
        return self._clock.monotonic() < firing.not_after_monotonic

    def _judged(
        self, answer: httpclient.Response | target.Trouble, firing: target.Firing, begun: float
    ) -> outcome.Outcome:
        """Return the outcome of an attempt that began at this monotonic instant; count it."""
        webhook = cast("actions.WebhookAction", firing.action.target)
        telemetry.webhook_seconds.observe(self._clock.monotonic() - begun)
        if isinstance(answer, target.Trouble):
            _attempts(answer.code_class).inc()
            if (service := webhook.service) is not None:  # its endpoints may have changed
                self._prepared.drop(firing.namespace, id(webhook))
                self._services.forget(firing.namespace, lambda key: key[0] == service.name)
        else:
            _attempts(f"{answer.status // 100}xx").inc()
        return response.judge(answer, webhook, now_us=self._clock.now_us(), due_us=firing.due_us)

    # -- what deliveries have in common ------------------------------------------------------------

    async def _prepare(
        self, namespace: str, asked: actions.WebhookAction, seconds: float
    ) -> Prepared | target.Trouble:
        """Read what a delivery needs within ``seconds``; return it, or what is missing."""
        kept: credentials.WebhookCredentials | None = None
        webhook = asked
        try:
            async with asyncio.timeout(seconds):
                if asked.needs_secrets:
                    found = await self._source.of(namespace, asked)
                    if isinstance(found, target.Trouble):
                        return found
                    kept = found
                    if asked.url_from is not None:
                        webhook = msgspec.structs.replace(asked, url=kept.url)
                where = await endpoints.locate(self._services, namespace, webhook)
        except TimeoutError:  # the API server's fault; the receiver was not called
            message = f"nothing was sent: the API server did not answer in {seconds:.3g} s"
            return references.unread(Reason.API_UNAVAILABLE, message)
        if isinstance(where, target.Trouble):
            if asked.url_from is None:
                return where
            secret = asked.url_from.secret_key_ref.name
            message = f"the URL in Secret {secret} cannot be called"
            return dataclasses.replace(where, message=message)  # the original repeats the URL
        composer = request.Composer(asked, kept)
        host = where.url.host_port_subcomponent or ""
        try:
            head = httpclient.request_head(
                asked.method, where.url.raw_path_qs, [("Host", host), *composer.common]
            )
        except ValueError as error:
            return response.trouble(error, where.host)
        tls, server_name = None, where.server_name
        if where.url.scheme == "https":
            tls = self._tls or dialling.public_tls()
            if kept is not None and kept.tls is not None:
                tls = kept.tls
                server_name = (asked.tls.server_name if asked.tls else None) or server_name
        is_read = asked.needs_secrets or asked.service is not None
        made = Prepared(
            asked=asked,
            webhook=webhook,
            until=self._clock.monotonic() + _TOGETHER_SECONDS if is_read else math.inf,
            endpoint=httpclient.Endpoint(
                host=where.host,
                port=where.url.port or 0,
                tls=tls,
                server_name=server_name,
                route=where.route,
                namespace=namespace,
            ),
            composer=composer,
            head=head,
        )
        self._prepared.put(namespace, id(asked), made, _ENTRY_BYTES + 2 * len(head))
        return made


@functools.cache
def _attempts(code_class: str) -> prometheus_client.Counter:
    return telemetry.webhook_attempts_total.labels(code_class)
