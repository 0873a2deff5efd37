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
import http.cookies
import os
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp
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

_NO_CEILING = 1e9  # aiohttp rounds time limits up to whole seconds, from this many seconds on


class _NoCookies(aiohttp.DummyCookieJar):
    """Neither keeps nor sends any; one empty answer instead of a new one for each request."""

    _none: http.cookies.SimpleCookie = http.cookies.SimpleCookie()

    def filter_cookies(self, request_url: yarl.URL) -> http.cookies.SimpleCookie:  # noqa: ARG002
        return self._none


#: Answers that may mean that a Secret has changed since it was read.
_UNWELCOME = frozenset({401, 403})


@dataclass(slots=True)
class _Asked:
    """How far an attempt came: whether the receiver had its chance."""

    receiver: bool = False


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
        if target.seconds_left(firing, self._clock) <= 0:
            return target.not_started()
        entry = await self._gate.enter(firing, webhook, self._clock.now_us())
        if not isinstance(entry, gates.Entry):
            return entry
        is_well: bool | None = None
        try:
            seconds = target.seconds_left(firing, self._clock)
            if seconds <= 0:  # its turn came too late
                return target.not_started()
            asked = _Asked()
            begun = self._clock.monotonic()
            answer = await self._ask(firing, webhook, seconds, asked)
            if isinstance(answer, answers.Trouble) and webhook.service is not None:
                self._services.forget(firing.namespace, webhook.service.name)
            _count(answer, self._clock.monotonic() - begun)
            times = answers.Times(now_us=self._clock.now_us(), due_us=firing.due_us)
            given = answers.judge(answer, webhook, times)
            if asked.receiver:
                delivered = isinstance(given, outcome.Delivered)
                is_well = gates.verdict(answer, delivered=delivered)
        finally:
            self._gate.leave(entry, firing, is_well)
        if isinstance(given, outcome.Rejected) and given.reason is Reason.ENDPOINT_GONE:
            self._gate.note_gone(firing)
        return given

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

    async def _ask(
        self,
        firing: target.Firing,
        webhook: actions.WebhookAction,
        seconds: float,
        asked: _Asked,
    ) -> answers.Answer | answers.Trouble:
        ends = asyncio.get_running_loop().time() + seconds
        kept: materials.Materials | None = None
        try:
            async with asyncio.timeout_at(ends):
                if not webhook.is_plain:
                    found = await self._source.of(firing.namespace, webhook)
                    if isinstance(found, answers.Trouble):
                        return found
                    kept = found
                where = await endpoints.locate(self._services, firing.namespace, webhook)
                if isinstance(where, answers.Trouble):
                    return where
                asked.receiver = True
                response = await self._send(firing, webhook, kept, where)
        except TimeoutError:
            return _late(f"no answer within {seconds:.3g} s")
        if isinstance(response, answers.Trouble):
            return response
        if kept is not None and response.status in _UNWELCOME:
            self._source.forget(firing.namespace)
        return _answer(response, await _start_of_body(response, ends), webhook, kept)

    async def _send(
        self,
        firing: target.Firing,
        webhook: actions.WebhookAction,
        kept: materials.Materials | None,
        where: endpoints.Destination,
    ) -> aiohttp.ClientResponse | answers.Trouble:
        """The response, its body unread; or why there is none."""
        dial = egress.Dial(where.route)
        try:
            await self._guard.prepare(where.host, dial)
            with self._guard.dialling(dial):
                return await self._request(firing, webhook, kept, where)
        except TimeoutError:
            return _late(f"no connection to {where.host} within {CONNECT_SECONDS:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if dial.denials:
                return _blocked(where.host, dial)
            return _trouble(error, where.host)

    async def _request(
        self,
        firing: target.Firing,
        webhook: actions.WebhookAction,
        kept: materials.Materials | None,
        where: endpoints.Destination,
    ) -> aiohttp.ClientResponse:
        left = firing.not_after_monotonic - self._clock.monotonic()
        if left <= 0:  # the look-ups took what was left of the claim
            raise TimeoutError
        request = outgoing.compose(firing, webhook, kept, self._clock.now_us())
        return await self._session().request(
            request.method,
            where.url,
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            timeout=_timeout(left),
            **_tls(webhook, kept, where),
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


def _count(answer: answers.Answer | answers.Trouble, seconds: float) -> None:
    telemetry.webhook_attempts_total.labels(answer.code_class).inc()
    telemetry.webhook_seconds.observe(seconds)


def _timeout(left_of_claim: float) -> aiohttp.ClientTimeout:
    """A connection must be had before the claim ends; the whole is bounded by the caller."""
    return aiohttp.ClientTimeout(
        total=None,
        connect=left_of_claim,
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


async def _start_of_body(response: aiohttp.ClientResponse, ends: float) -> bytes:
    """What there is of the body within the limits; a body read to its end keeps the connection.

    The status line has decided already: a body that is cut, endless, slow or garbage costs its
    sender the connection and nothing else.
    """
    body = bytearray()
    if response.content.at_eof():  # nothing came, and the connection is back already
        return b""
    try:
        async with asyncio.timeout_at(ends):
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
