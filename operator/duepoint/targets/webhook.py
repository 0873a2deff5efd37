"""The webhook target: one slot, one HTTP request, bounded in every direction.

Owns the steps of a delivery and its time limits. What is sent is ``outgoing``'s, what of it is
secret ``materials``'s, where it goes ``endpoints``'s, whether it may ``egress``'s, how it is asked
and how much of the answer is read ``exchange``'s, what an answer means ``answers``'s, and what is
told where there is none ``unanswered``'s.

Nothing is sent after the claim's end: waiting for a connection counts towards that. The same
``webhook-id`` goes with every attempt of a slot; the timestamp is the attempt's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import aiohttp
import msgspec
import prometheus_client

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import (
    answers,
    conversation,
    egress,
    endpoints,
    exchange,
    hostlimits,
    materials,
    outgoing,
    target,
    unanswered,
)
from duepoint.targets import gate as gates

#: Requests to one receiver at a time, and attempts of a worker, where nobody says otherwise.
LIMIT_PER_HOST = 32
PLACES = 256
#: Answers that may mean that a Secret has changed since it was read.
_UNWELCOME = frozenset({401, 403})


@dataclass(slots=True)
class _Ready:
    """What a delivery needs: where it goes, and what was read for it."""

    where: endpoints.Destination
    kept: materials.Materials | None


class WebhookTarget:
    """Sends webhooks. ``close`` it when nothing is under way any more.

    Args:
        on_reply: receives each answer with its text, for a person who tries a webhook; outcomes
            never hold that text.
    """

    def __init__(
        self,
        guard: egress.Guard,
        services: endpoints.Services,
        source: materials.Source,
        clock: clocks.Clock,
        *,
        gate: gates.Gate | None = None,
        tls: ssl.SSLContext | None = None,
        on_reply: Callable[[exchange.Reply], None] | None = None,
    ) -> None:
        self._guard = guard
        self._on_reply = on_reply
        self._services = services
        self._source = source
        self._clock = clock
        self._gate = gate or gates.Gate(
            hostlimits.HostLimits(clock, per_host=LIMIT_PER_HOST, places=PLACES)
        )
        self._exchanges = exchange.Exchanges(functools.partial(guard.connector, tls=tls))

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Delivered once the receiver's status line says so."""
        webhook = _action(firing.action)
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        if webhook.url_secret is not None:
            found_url = await self._with_url(firing, webhook, seconds)
            if isinstance(found_url, answers.Trouble):
                return self._judged(found_url, firing, webhook)
            webhook = found_url
            seconds = target.seconds_left(firing, self._clock)
        entry = self._gate.at_once(firing, webhook)
        if entry is None:
            found = await self._gate.enter(firing, webhook, self._clock.now_us())
            if not isinstance(found, gates.Entry):
                return found
            entry = found
            seconds = target.seconds_left(firing, self._clock)
        is_well: bool | None = None
        cause = ""
        try:
            given, is_well = await self._attempt(firing, webhook, seconds)
            cause = given.message
        finally:
            self._gate.leave(entry, firing, is_well, cause)
        if isinstance(given, outcome.Rejected) and given.reason is Reason.ENDPOINT_GONE:
            self._gate.note_gone(firing)
        return given

    async def _with_url(
        self, firing: target.Firing, webhook: actions.WebhookAction, seconds: float
    ) -> actions.WebhookAction | answers.Trouble:
        """The webhook with the URL that stands in a Secret: its circuit and turn hang on it."""
        try:
            async with asyncio.timeout(seconds):
                found = await self._source.of(firing.namespace, webhook)
        except TimeoutError:
            return unanswered.no_answer(seconds)
        if isinstance(found, answers.Trouble):
            return found
        return msgspec.structs.replace(webhook, url=found.url)

    async def _attempt(
        self, firing: target.Firing, webhook: actions.WebhookAction, seconds: float
    ) -> tuple[outcome.Outcome, bool | None]:
        """What came of it, and whether the receiver is well; None where it was not asked."""
        if seconds <= 0:  # its turn came too late
            return target.not_started(), None
        begun = self._clock.monotonic()
        was_asked = True
        ready = self._at_hand(firing, webhook)
        answer: answers.Answer | answers.Trouble
        if ready is None:
            found = await self._prepared_within(seconds, firing, webhook)
            if isinstance(found, answers.Trouble):
                answer, was_asked = found, False
            else:
                seconds -= self._clock.monotonic() - begun
                answer = await self._send(firing, webhook, found, seconds)
        else:
            answer = await self._send(firing, webhook, ready, seconds)
        _count(answer, self._clock.monotonic() - begun)
        given = self._judged(answer, firing, webhook)
        if not was_asked:
            return given, None
        return given, gates.verdict(answer, delivered=isinstance(given, outcome.Delivered))

    def _judged(
        self,
        answer: answers.Answer | answers.Trouble,
        firing: target.Firing,
        webhook: actions.WebhookAction,
    ) -> outcome.Outcome:
        if isinstance(answer, answers.Trouble) and webhook.service is not None:
            self._services.forget(firing.namespace, webhook.service.name)
        times = answers.Times(now_us=self._clock.now_us(), due_us=firing.due_us)
        return answers.judge(answer, webhook, times)

    async def check(self, firing: target.Firing) -> answers.Trouble | None:
        """Whether what the webhook refers to can be read and used; sends nothing."""
        webhook = _action(firing.action)
        if webhook.is_plain:
            return None
        found = await self._source.of(firing.namespace, webhook)
        return found if isinstance(found, answers.Trouble) else None

    async def close(self) -> None:
        """Close the connections and the guard, and tell what is left to tell."""
        await self._gate.close()
        await self._exchanges.close()
        await self._guard.close()

    def _at_hand(self, firing: target.Firing, webhook: actions.WebhookAction) -> _Ready | None:
        """What a delivery needs, where nobody has to be asked for any of it."""
        kept: materials.Materials | None = None
        if not webhook.is_plain:
            kept = self._source.at_hand(firing.namespace, _action(firing.action))
            if kept is None:
                return None
        if webhook.url is None:
            return None
        where = endpoints.of_url(webhook.url)
        return _Ready(where, kept) if isinstance(where, endpoints.Destination) else None

    async def _prepared_within(
        self, seconds: float, firing: target.Firing, webhook: actions.WebhookAction
    ) -> _Ready | answers.Trouble:
        try:
            async with asyncio.timeout(seconds):
                return await self._prepared(firing, webhook)
        except TimeoutError:
            return unanswered.no_answer(seconds)

    async def _prepared(
        self, firing: target.Firing, webhook: actions.WebhookAction
    ) -> _Ready | answers.Trouble:
        kept: materials.Materials | None = None
        if not webhook.is_plain:
            found = await self._source.of(firing.namespace, _action(firing.action))
            if isinstance(found, answers.Trouble):
                return found
            kept = found
        where = await endpoints.locate(self._services, firing.namespace, webhook)
        if isinstance(where, answers.Trouble) and webhook.url_secret is not None:
            message = f"the URL in Secret {webhook.url_secret.name} cannot be called"
            return dataclasses.replace(where, message=message)  # theirs repeats the URL
        return where if isinstance(where, answers.Trouble) else _Ready(where, kept)

    async def _send(
        self,
        firing: target.Firing,
        webhook: actions.WebhookAction,
        ready: _Ready,
        seconds: float,
    ) -> answers.Answer | answers.Trouble:
        """The answer, as far as it is read; or why there is none."""
        host = ready.where.host
        dial = egress.Dial(ready.where.route, firing.namespace)
        try:
            if not self._guard.is_ready_for(host):
                await self._guard.prepare(host, dial)
            token = self._guard.begin(dial)
            try:
                reply = await self._exchange(firing, webhook, ready, seconds)
            finally:
                self._guard.end(token)
        except exchange.ConnectionLate:
            within = min(seconds, exchange.CONNECT_SECONDS)
            return unanswered.late(f"no connection to {host} within {within:.3g} s")
        except TimeoutError:
            return unanswered.no_answer(seconds)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if dial.denials:
                return unanswered.blocked(host, dial)
            return unanswered.trouble(error, host)
        if ready.kept is not None and reply.status in _UNWELCOME:
            self._source.forget(firing.namespace)
        if self._on_reply is not None:
            self._on_reply(reply)
        return answers.Answer(status=reply.status, retry_after=reply.headers.get("Retry-After"))

    def _exchange(
        self,
        firing: target.Firing,
        webhook: actions.WebhookAction,
        ready: _Ready,
        seconds: float,
    ) -> Coroutine[None, None, exchange.Reply]:
        """A connection must be had before the claim ends, and the whole within the seconds."""
        left = firing.not_after_monotonic - self._clock.monotonic()
        if left <= 0 or seconds <= 0:  # the look-ups took what was left
            raise TimeoutError
        return self._exchanges.send(
            outgoing.compose(firing, webhook, ready.kept, self._clock.now_us()),
            _line(webhook, ready),
            seconds=seconds,
            connect_seconds=left,
            # Sleeps and limits do not count what the machine was suspended; this clock does.
            may_ask=lambda: self._clock.monotonic() < firing.not_after_monotonic,
        )


@functools.cache
def _attempts(code_class: str) -> prometheus_client.Counter:
    return telemetry.webhook_attempts_total.labels(code_class)


def _count(answer: answers.Answer | answers.Trouble, seconds: float) -> None:
    _attempts(answer.code_class).inc()
    telemetry.webhook_seconds.observe(seconds)


def _line(webhook: actions.WebhookAction, ready: _Ready) -> conversation.Line:
    """Whom to trust and which name to verify, where that is not what everybody's is."""
    where, kept = ready.where, ready.kept
    if kept is None or kept.tls is None:
        return conversation.Line(where.url, server_name=where.server_name)
    wanted = webhook.tls.server_name if webhook.tls else None
    return conversation.Line(where.url, kept.tls, wanted or where.server_name)


def _action(action: actions.Action) -> actions.WebhookAction:
    if not isinstance(action.target, actions.WebhookAction):
        raise errors.Bug(f"a {type(action.target).__name__} was handed to the webhook target")
    return action.target
