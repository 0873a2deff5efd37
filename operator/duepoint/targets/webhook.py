"""The webhook target: one slot, one HTTP request, bounded in every direction.

Owns the one session through which all webhooks go and the exchange itself: the time limits, and
how much of an answer is read. No redirects, no cookies, no proxies from the environment, no
decompression. What is sent is ``outgoing``'s, what of it is secret ``materials``'s, where it goes
``endpoints``'s, whether it may ``egress``'s, what an answer means ``answers``'s.

Nothing is sent after the claim's end: waiting for a connection counts towards that. The same
``webhook-id`` goes with every attempt of a slot; the timestamp is the attempt's.
"""

from __future__ import annotations

import asyncio
import functools
import http.cookies
import os
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp
import prometheus_client
import yarl

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import answers, egress, endpoints, hostlimits, materials, outgoing, target
from duepoint.targets import gate as gates

#: Requests to one receiver at a time, and attempts of a worker, where nobody says otherwise.
LIMIT_PER_HOST = 32
PLACES = 256
CONNECT_SECONDS = 5.0
#: Most that is read of an answer's body; a longer one costs the connection, nothing else.
BODY_LIMIT_BYTES = 64 * 1024

#: Time limits are counted in these, rounded down, so that few different ones are made.
_STEP_SECONDS = 0.02
_NO_CEILING = 1e9  # aiohttp rounds time limits up to whole seconds, from this many seconds on


class _NoCookies(aiohttp.DummyCookieJar):
    """Neither keeps nor sends any; one empty answer instead of a new one for each request."""

    _none: http.cookies.SimpleCookie = http.cookies.SimpleCookie()

    def filter_cookies(self, request_url: yarl.URL) -> http.cookies.SimpleCookie:  # noqa: ARG002
        return self._none


#: Answers that may mean that a Secret has changed since it was read.
_UNWELCOME = frozenset({401, 403})


@dataclass(slots=True)
class _Ready:
    """What a delivery needs: where it goes, and what was read for it."""

    where: endpoints.Destination
    kept: materials.Materials | None


class WebhookTarget:
    """Sends webhooks. ``close`` it when nothing is under way any more."""

    def __init__(
        self,
        guard: egress.Guard,
        services: endpoints.Services,
        source: materials.Source,
        clock: clocks.Clock,
        *,
        gate: gates.Gate | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._services = services
        self._source = source
        self._clock = clock
        self._gate = gate or gates.Gate(
            hostlimits.HostLimits(clock, per_host=LIMIT_PER_HOST, places=PLACES)
        )
        self._tls = tls
        self._opened: aiohttp.ClientSession | None = None

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Delivered once the receiver's status line says so."""
        webhook = _action(firing.action)
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        entry = self._gate.at_once(firing, webhook)
        if entry is None:
            found = await self._gate.enter(firing, webhook, self._clock.now_us())
            if not isinstance(found, gates.Entry):
                return found
            entry = found
            seconds = target.seconds_left(firing, self._clock)
        is_well: bool | None = None
        try:
            given, is_well = await self._attempt(firing, webhook, seconds)
        finally:
            self._gate.leave(entry, firing, is_well)
        if isinstance(given, outcome.Rejected) and given.reason is Reason.ENDPOINT_GONE:
            self._gate.note_gone(firing)
        return given

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
        if self._opened is not None:
            await self._opened.close()
        await self._guard.close()

    def _at_hand(self, firing: target.Firing, webhook: actions.WebhookAction) -> _Ready | None:
        """What a delivery needs, where nobody has to be asked for any of it."""
        kept: materials.Materials | None = None
        if not webhook.is_plain:
            kept = self._source.at_hand(firing.namespace, webhook)
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
            return _no_answer(seconds)

    async def _prepared(
        self, firing: target.Firing, webhook: actions.WebhookAction
    ) -> _Ready | answers.Trouble:
        kept: materials.Materials | None = None
        if not webhook.is_plain:
            found = await self._source.of(firing.namespace, webhook)
            if isinstance(found, answers.Trouble):
                return found
            kept = found
        where = await endpoints.locate(self._services, firing.namespace, webhook)
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
        dial = egress.Dial(ready.where.route)
        try:
            if not self._guard.is_ready_for(host):
                await self._guard.prepare(host, dial)
            token = self._guard.begin(dial)
            try:
                response = await self._request(firing, webhook, ready, seconds)
            finally:
                self._guard.end(token)
        except aiohttp.ServerTimeoutError:
            return _late(f"no connection to {host} within {CONNECT_SECONDS:g} s")
        except TimeoutError:
            return _no_answer(seconds)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if dial.denials:
                return _blocked(host, dial)
            return _trouble(error, host)
        if ready.kept is not None and response.status in _UNWELCOME:
            self._source.forget(firing.namespace)
        body = b"" if response.content.at_eof() else await _start_of_body(response)
        if answers.matches(response.status, webhook.success):
            return answers.Answer(status=response.status)  # nobody reads what it said
        return _answer(response, body, webhook, ready.kept)

    async def _request(
        self,
        firing: target.Firing,
        webhook: actions.WebhookAction,
        ready: _Ready,
        seconds: float,
    ) -> aiohttp.ClientResponse:
        """The response, its body unread; the time limit goes on while that is read."""
        left = firing.not_after_monotonic - self._clock.monotonic()
        if left <= 0 or seconds <= 0:  # the look-ups took what was left
            raise TimeoutError
        request = outgoing.compose(firing, webhook, ready.kept, self._clock.now_us())
        return await self._session().request(
            request.method,
            ready.where.url,
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            timeout=_timeout(seconds, left),
            **_tls(webhook, ready.kept, ready.where),
        )

    def _session(self) -> aiohttp.ClientSession:
        """Made at the first use, because it belongs to the loop that runs then."""
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=self._guard.connector(tls=self._tls),
                cookie_jar=_NoCookies(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=("Accept-Encoding", "Content-Type"),
            )
        return self._opened


@functools.cache
def _attempts(code_class: str) -> prometheus_client.Counter:
    return telemetry.webhook_attempts_total.labels(code_class)


def _count(answer: answers.Answer | answers.Trouble, seconds: float) -> None:
    _attempts(answer.code_class).inc()
    telemetry.webhook_seconds.observe(seconds)


def _timeout(seconds: float, left_of_claim: float) -> aiohttp.ClientTimeout:
    """The whole within these seconds; a connection must be had before the claim ends."""
    steps = int(seconds / _STEP_SECONDS), int(left_of_claim / _STEP_SECONDS)
    return _stepped_timeout(*steps)


@functools.lru_cache(maxsize=4096)
def _stepped_timeout(seconds: int, left_of_claim: int) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=max(seconds, 1) * _STEP_SECONDS,
        connect=max(left_of_claim, 1) * _STEP_SECONDS,
        sock_connect=CONNECT_SECONDS,
        ceil_threshold=_NO_CEILING,
    )


def _tls(
    webhook: actions.WebhookAction,
    kept: materials.Materials | None,
    where: endpoints.Destination,
) -> dict[str, Any]:
    """Whom to trust and which name to verify, where that is not what the session does anyway."""
    if kept is None or kept.tls is None:
        return {"server_hostname": where.server_name}
    wanted = webhook.tls.server_name if webhook.tls else None
    return {"server_hostname": wanted or where.server_name, "ssl": kept.tls}


def _answer(
    response: aiohttp.ClientResponse,
    body: bytes,
    webhook: actions.WebhookAction,
    kept: materials.Materials | None,
) -> answers.Answer:
    shown = (header.value for header in webhook.headers)
    return answers.Answer(
        status=response.status,
        retry_after=response.headers.get("Retry-After"),
        excerpt=answers.excerpt(body, shown, () if kept is None else kept.unspeakable),
    )


async def _start_of_body(response: aiohttp.ClientResponse) -> bytes:
    """What there is of the body within the limits; a body read to its end keeps the connection.

    The status line has decided already: a body that is cut, endless, slow or garbage costs its
    sender the connection and nothing else.
    """
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) >= BODY_LIMIT_BYTES:
                break
    except (aiohttp.ClientError, OSError, ValueError):  # TimeoutError is an OSError
        pass
    finally:
        response.close()  # gives back a connection whose body has ended
    return bytes(body[:BODY_LIMIT_BYTES])


# -- what went wrong -----------------------------------------------------------------------------


def _no_answer(seconds: float) -> answers.Trouble:
    return _late(f"no answer within {seconds:.3g} s")


def _late(message: str) -> answers.Trouble:
    return answers.Trouble(reason=Reason.TIMEOUT, message=message, code_class="timeout")


def _blocked(host: str, dial: egress.Dial) -> answers.Trouble:
    return answers.Trouble(
        reason=Reason.BLOCKED_ADDRESS,
        message=f"{host} may not be called: {dial.denials[0].reason}",
        code_class="blocked",
        final=True,
    )


def _trouble(error: Exception, host: str) -> answers.Trouble:
    """Messages name the class of error; library texts may repeat what was sent."""
    said = f"{host}: {_wording(error)}"
    if isinstance(error, aiohttp.InvalidURL | UnicodeError) or not isinstance(
        error, aiohttp.ClientError | OSError
    ):
        return answers.Trouble(reason=Reason.INVALID_WEBHOOK, message=said, final=True)
    return answers.Trouble(reason=Reason.NETWORK, message=said)


#: The first that fits is told.
_WORDINGS: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorSSLError, "TLS cannot be agreed upon"),
    (aiohttp.ClientConnectorDNSError, "the name cannot be resolved"),
    (aiohttp.ServerDisconnectedError, "the connection was cut before an answer"),
    (ConnectionError, "the connection was cut before an answer"),
    (aiohttp.ClientResponseError, "what it answered is not HTTP"),
    (aiohttp.InvalidURL, "the URL cannot be called"),
    (UnicodeError, "the URL cannot be called"),
)


def _wording(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is refused: {_certificate_trouble(error)}"
    for kind, wording in _WORDINGS:
        if isinstance(error, kind):
            return wording
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot be reached: {_system_wording(error.os_error)}"
    return f"the request failed ({type(error).__name__})"


def _system_wording(error: OSError) -> str:
    """The system's words for the number; asyncio's own text repeats the address."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _certificate_trouble(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return getattr(cause, "verify_message", "") or type(cause).__name__


def _action(action: actions.Action) -> actions.WebhookAction:
    if not isinstance(action.target, actions.WebhookAction):
        raise errors.Bug(f"a {type(action.target).__name__} was handed to the webhook target")
    return action.target
