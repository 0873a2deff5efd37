"""The webhook target: one slot, one HTTP request, bounded in every direction.

Owns the one session through which all webhooks go and the exchange itself: the request (body,
``webhook-id``, ``webhook-timestamp``, the user's headers), the time limits, and how much of an
answer is read. No redirects, no cookies, no proxies from the environment, no decompression. Where
it goes is ``endpoints``'s, whether it may is ``egress``'s, what an answer means is ``answers``'s.

Nothing is sent after the claim's end: waiting for a connection counts towards that. The same
``webhook-id`` goes with every attempt of a slot; the timestamp is the attempt's.
"""

from __future__ import annotations

import asyncio
import http.cookies
import os
import ssl
from dataclasses import dataclass

import aiohttp
import yarl

import duepoint
from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import answers, egress, endpoints, identity, target

#: Connections to one receiver; further deliveries to it wait their turn.
LIMIT_PER_HOST = 32
CONNECT_SECONDS = 5.0
#: Most that is read of an answer's body; a longer one costs the connection, nothing else.
BODY_LIMIT_BYTES = 64 * 1024

_NO_CEILING = 1e9  # aiohttp rounds time limits up to whole seconds, from this many seconds on


class _NoCookies(aiohttp.DummyCookieJar):
    """Neither keeps nor sends any; one empty answer instead of a new one for each request."""

    _none: http.cookies.SimpleCookie = http.cookies.SimpleCookie()

    def filter_cookies(self, request_url: yarl.URL) -> http.cookies.SimpleCookie:  # noqa: ARG002
        return self._none


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is sent in one attempt."""

    method: str
    headers: list[tuple[str, str]]
    body: bytes | None


class WebhookTarget:
    """Sends webhooks. ``close`` it when nothing is under way any more."""

    def __init__(
        self,
        guard: egress.Guard,
        services: endpoints.Services,
        clock: clocks.Clock,
        *,
        limit_per_host: int = LIMIT_PER_HOST,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._services = services
        self._clock = clock
        self._limit_per_host = limit_per_host
        self._tls = tls
        self._opened: aiohttp.ClientSession | None = None

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Delivered once the receiver's status line says so."""
        webhook = _action(firing.action)
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        begun = self._clock.monotonic()
        answer = await self._ask(firing, webhook, seconds)
        if isinstance(answer, answers.Trouble) and webhook.service is not None:
            self._services.forget(firing.namespace, webhook.service.name)
        telemetry.webhook_attempts_total.labels(answer.code_class).inc()
        telemetry.webhook_seconds.observe(self._clock.monotonic() - begun)
        times = answers.Times(now_us=self._clock.now_us(), due_us=firing.due_us)
        return answers.judge(answer, webhook, times)

    async def close(self) -> None:
        """Close the connections and the guard."""
        if self._opened is not None:
            await self._opened.close()
        await self._guard.close()

    async def _ask(
        self, firing: target.Firing, webhook: actions.WebhookAction, seconds: float
    ) -> answers.Answer | answers.Trouble:
        ends = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(ends):
                where = await endpoints.locate(self._services, firing.namespace, webhook)
                if isinstance(where, answers.Trouble):
                    return where
                response = await self._send(firing, webhook, where)
        except TimeoutError:
            return _late(f"no answer within {seconds:.3g} s")
        if isinstance(response, answers.Trouble):
            return response
        body = await _start_of_body(response, ends)
        return answers.Answer(
            status=response.status,
            retry_after=response.headers.get("Retry-After"),
            excerpt=answers.excerpt(body, (header.value for header in webhook.headers)),
        )

    async def _send(
        self, firing: target.Firing, webhook: actions.WebhookAction, where: endpoints.Destination
    ) -> aiohttp.ClientResponse | answers.Trouble:
        """The response, its body unread; or why there is none."""
        dial = egress.Dial(where.route)
        try:
            await self._guard.prepare(where.host, dial)
            with self._guard.dialling(dial):
                return await self._request(firing, webhook, where)
        except TimeoutError:
            return _late(f"no connection to {where.host} within {CONNECT_SECONDS:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if dial.denials:
                return _blocked(where.host, dial)
            return _trouble(error, where.host)

    async def _request(
        self, firing: target.Firing, webhook: actions.WebhookAction, where: endpoints.Destination
    ) -> aiohttp.ClientResponse:
        left = firing.not_after_monotonic - self._clock.monotonic()
        if left <= 0:  # the look-ups took what was left of the claim
            raise TimeoutError
        request = _request(firing, webhook, self._clock.now_us())
        return await self._session().request(
            request.method,
            where.url,
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            server_hostname=where.server_name,
            timeout=_timeout(left),
        )

    def _session(self) -> aiohttp.ClientSession:
        """Made at the first use, because it belongs to the loop that runs then."""
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=self._guard.connector(limit_per_host=self._limit_per_host, tls=self._tls),
                cookie_jar=_NoCookies(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=("Accept-Encoding", "Content-Type"),
            )
        return self._opened


def _timeout(left_of_claim: float) -> aiohttp.ClientTimeout:
    """A connection must be had before the claim ends; the whole is bounded by the caller."""
    return aiohttp.ClientTimeout(
        total=None,
        connect=left_of_claim,
        sock_connect=CONNECT_SECONDS,
        ceil_threshold=_NO_CEILING,
    )


def _request(firing: target.Firing, webhook: actions.WebhookAction, now_us: int) -> _Request:
    standard = webhook.format == "Standard"
    body = identity.standard_body(firing, now_us) if standard else identity.raw_body(firing)
    has_body = webhook.method != "GET"
    return _Request(
        method=webhook.method,
        headers=_headers(firing, webhook, now_us, has_body=has_body and bool(body)),
        body=body if has_body else None,
    )


def _headers(
    firing: target.Firing, webhook: actions.WebhookAction, now_us: int, *, has_body: bool
) -> list[tuple[str, str]]:
    """The user's headers replace ours, except those that say which delivery this is."""
    theirs = [(header.name, header.value) for header in webhook.headers]
    taken = {name.lower() for name, _ in theirs}
    usual = [("user-agent", f"duepoint/{duepoint.__version__}")]
    if has_body:
        usual.append(("content-type", "application/json"))
    return [
        *((name, value) for name, value in usual if name not in taken),
        *theirs,
        ("webhook-id", identity.webhook_id(firing.uid, firing.slot_us, firing.run_uid)),
        ("webhook-timestamp", str(now_us // 1_000_000)),
    ]


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
