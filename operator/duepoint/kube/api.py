"""One session with a real API server: connections, credentials, timeouts, lists and watches.

Raw HTTP with typed decoding, because that costs a third of the CPU of the official client per
request and a fortieth per watch event. Requests go over ``net.http1``; watches, the Lease and
whatever a proxy stands before go over aiohttp. Every request ends within its timeout and
with bytes or a ``kube.errors.ApiError``. 401 is met once with credentials read again; 429 is obeyed
for the whole session, so that one throttled request keeps the others from knocking. Requests,
watches and the Lease have connections of their own: none waits behind another, and the Lease is
never held back.
Which answers are worth repeating is left to the caller, who knows what the write means.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
import yarl

import duepoint
from duepoint import errors as base
from duepoint.kube import (
    credentials,
    errors,
    lines,
    paging,
    port,
    wire,
)
from duepoint.net import connections, http1

CONNECT_TIMEOUT_SECONDS = 5.0
KEEPALIVE_SECONDS = 30.0
#: What is due every minute finds the connections of the last one: a handshake costs as much as
#: several Jobs. An API server closes those that were unused for 90 s.
KEPT_SECONDS = 75.0
#: Concurrent requests; more only queue up at the API server (measured: 32 reach its ceiling).
REQUEST_CONNECTIONS = 32
#: How long one page of a list may take.
_PAGE_SECONDS = 60.0
#: Bookmarks come about once a minute: a watch that is silent for longer is dead (K6).
WATCH_SILENCE_SECONDS = 70.0
#: The API server ends a watch after a time in this range; jitter keeps replicas apart.
WATCH_SECONDS = (240, 360)
#: Waits between attempts to reopen a watch, doubled each time, with full jitter.
REOPEN_SECONDS = (0.2, 30.0)

ItemT = TypeVar("ItemT", bound=port.Item)

#: Told of each finished request: verb, resource, status code (0 where no answer came).
Observer = Callable[[str, str, int], None]
#: Hears the headers of an answer, and when (``time.monotonic``) it was asked for.
HearTime = Callable[[Mapping[str, str], float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    verb: str
    path: str
    data: bytes | None
    query: Mapping[str, str] | None
    content_type: str
    accept: str
    deadline: float
    purpose: port.Purpose
    most_bytes: int | None = None

    @property
    def attempt(self) -> str:
        return f"{self.verb} {self.path}"


class ApiSession:
    """A ``port.Api`` over HTTP. Use it as an async context manager, on one event loop."""

    def __init__(
        self,
        access: credentials.Credentials,
        *,
        component: str,
        observe: Observer | None = None,
        hear_time: HearTime | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._access = access
        self._observe = observe or (lambda _verb, _resource, _code: None)
        self._hear_time = hear_time
        self._random = rng or random.Random()  # noqa: S311 - jitter
        self._agent = f"duepoint/{duepoint.__version__} ({component})"
        self._sessions: dict[port.Purpose, aiohttp.ClientSession] = {}
        self._pool = connections.Pool(
            connections.DirectOpener(), keep_seconds=KEPT_SECONDS, most_open=REQUEST_CONNECTIONS
        )
        self._server: _Server | None = None
        self._held_until = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests under way fail with Unavailable."""
        self._pool.close()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    # -- requests --------------------------------------------------------------------------

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = port.JSON,
        accept: str = port.JSON,
        timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
        purpose: port.Purpose = port.Purpose.REQUEST,
    ) -> bytes:
        """See ``port.Api.request``."""
        call = _Call(
            verb=verb,
            path=path,
            data=body if body is None or isinstance(body, bytes) else msgspec.json.encode(body),
            query=query,
            content_type=content_type,
            accept=accept,
            deadline=_now() + timeout_seconds,
            purpose=purpose,
        )
        return await self._answered(call)

    async def _answered(self, call: _Call) -> bytes:
        renewed = False
        while True:
            await self._wait_out_hold(call)
            try:
                return await self._exchange(call)
            except errors.Unauthorized:
                if renewed or not await self._renewed_by(call.deadline):
                    raise
                renewed = True
            except errors.Throttled as error:
                self._hold(error.retry_after_seconds or 1.0)
                if self._held_until >= call.deadline or call.purpose is port.Purpose.LEASE:
                    raise

    async def _exchange(self, call: _Call) -> bytes:
        code = 0
        try:
            login = await self._logged_in(call.deadline)
            is_thin = login.proxy is None and call.purpose is port.Purpose.REQUEST
            asked = time.monotonic()
            answer = await (self._sent(call, login) if is_thin else self._asked(call, login))
            code = answer.status
            if self._hear_time is not None:
                self._hear_time(answer.headers, asked)
            if code >= 300:
                raise errors.from_answer(call.attempt, code, answer.headers, answer.body)
        except http1.TooLarge:
            raise
        except _NETWORK_ERRORS as error:
            raise _unavailable(call.attempt, error) from error
        else:
            return answer.body
        finally:
            self._observe(call.verb, wire.resource_of(call.path), code)

    async def _logged_in(self, deadline: float) -> credentials.Login:
        if (known := self._access.known()) is not None:
            return known
        try:
            async with asyncio.timeout_at(deadline):
                return await self._access.login()
        except base.InvalidSetting as error:  # a plugin that worked before
            raise errors.Unauthorized(str(error), sent=False) from error

    async def _sent(self, call: _Call, login: credentials.Login) -> http1.Response:
        """Over the thin client."""
        if self._server is None or self._server.login is not login:
            self._server = _server_of(login)
        server = self._server
        headers = [("Host", server.host), ("User-Agent", self._agent), *server.authorization]
        headers.append(("Accept", call.accept))
        if call.data is not None:
            headers.append(("Content-Type", call.content_type))
        return await self._pool.send(
            connections.Call(
                endpoint=server.endpoint,
                content=http1.request_bytes(
                    call.verb, _target(server, call.path, call.query), headers, call.data
                ),
                deadline=call.deadline,
                connect_by=call.deadline,
                is_repeatable=call.verb in _REPEATABLE,
                rule=http1.BodyRule(call.most_bytes),
            )
        )

    async def _asked(self, call: _Call, login: credentials.Login) -> http1.Response:
        """By aiohttp."""
        url, options = _prepared(login, call.path, call.query)
        options["headers"]["Accept"] = call.accept
        if call.data is not None:
            options["headers"]["Content-Type"] = call.content_type
        session = self._session(call.purpose)
        async with (
            asyncio.timeout_at(call.deadline),
            session.request(call.verb, url, data=call.data, **options) as answer,
        ):
            body = await _read(answer, call.most_bytes)
            return http1.Response(answer.status, answer.headers, body, keep_alive=True)

    async def _renewed_by(self, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._access.renew()
        except (TimeoutError, base.InvalidSetting):
            return False

    def _hold(self, seconds: float) -> None:
        # Up to a quarter more, so that what waited together does not come back together.
        until = _now() + seconds * (1 + self._random.random() / 4)
        self._held_until = max(self._held_until, until)

    async def _wait_out_hold(self, call: _Call) -> None:
        if call.purpose is port.Purpose.LEASE:
            return
        left = self._held_until - _now()
        if left <= 0:
            return
        if self._held_until >= call.deadline:
            raise errors.Throttled(
                f"{call.attempt}: not sent, the API server asked to wait",
                status=429,
                sent=False,
                retry_after_seconds=left,
            )
        await asyncio.sleep(left)

    def _session(self, purpose: port.Purpose) -> aiohttp.ClientSession:
        session = self._sessions.get(purpose)
        if session is None:
            session = self._sessions[purpose] = self._opened(purpose)
        return session

    def _opened(self, purpose: port.Purpose) -> aiohttp.ClientSession:
        limits = {port.Purpose.WATCH: 0, port.Purpose.LEASE: 4}
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limits.get(purpose, REQUEST_CONNECTIONS),
                keepalive_timeout=KEEPALIVE_SECONDS,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
            headers={
                "User-Agent": self._agent,
                # Packing the pages of a long list takes an API server longer than sending them.
                "Accept-Encoding": "identity",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    # -- lists -----------------------------------------------------------------------------

    async def list_pages(
        self,
        path: str,
        item_type: type[ItemT],
        *,
        limit: int = port.PAGE_LIMIT,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.Page[ItemT]]:
        """See ``port.Api.list_pages``."""
        decoder = msgspec.json.Decoder(port.Page[item_type])  # type: ignore[valid-type]
        asked = dict(query or {})
        pages = paging.Paging(limit)
        async with contextlib.AsyncExitStack() as asking:
            body = await self._page(path, asked, pages)
            while True:
                page = wire.decoded(decoder, body, f"GET {path}")
                asked = {**asked, "continue": page.metadata.continue_token}
                if not page.metadata.continue_token:
                    yield page
                    return
                # The API server works on the next page while this one is being read.
                following = asyncio.create_task(self._page(path, asked, pages))
                asking.push_async_callback(_end, following)
                yield page
                del page, body  # or three of them would be held
                body = await following
                asking.pop_all()

    async def _page(self, path: str, asked: Mapping[str, str], pages: paging.Paging) -> bytes:
        while True:
            call = _Call(
                verb="GET",
                path=path,
                data=None,
                query={**asked, "limit": str(pages.limit)},
                content_type=port.JSON,
                accept=port.JSON,
                deadline=_now() + _PAGE_SECONDS,
                purpose=port.Purpose.REQUEST,
                most_bytes=pages.most_bytes,
            )
            try:
                body = await self._answered(call)
            except http1.TooLarge:
                pages.was_too_large()
                continue
            pages.note(len(body))
            return body

    # -- watches ---------------------------------------------------------------------------

    async def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.Change[ItemT]]:
        """See ``port.Api.watch``."""
        decoder = msgspec.json.Decoder(item_type)
        failures, renewed = 0, False
        while True:
            try:
                async for event in self._events(path, resource_version, query):
                    failures, renewed = 0, False
                    resource_version = wire.next_version(event, resource_version, path)
                    if event.type in port.ChangeType.__members__:
                        item = wire.decoded(decoder, event.object, f"WATCH {path}")
                        yield port.Change(port.ChangeType(event.type), item)
            except errors.Unauthorized:
                if renewed or not await self._renewed_by(_now() + CONNECT_TIMEOUT_SECONDS):
                    raise
                renewed = True
            except errors.Unavailable as error:
                failures += 1
                await asyncio.sleep(self._reopen_wait(failures, error.retry_after_seconds))
            else:
                # A server that closes each watch at once must not be asked in a tight loop.
                await asyncio.sleep(self._random.uniform(0.05, REOPEN_SECONDS[0]))

    async def _events(
        self, path: str, resource_version: str, query: Mapping[str, str] | None
    ) -> AsyncIterator[wire.Event]:
        attempt = f"WATCH {path}"
        code = 0
        try:
            login = await self._logged_in(_now() + CONNECT_TIMEOUT_SECONDS)
            url, options = _prepared(login, path, self._watch_query(resource_version, query))
            session = self._session(port.Purpose.WATCH)
            silence = aiohttp.ClientTimeout(
                total=None,
                sock_connect=CONNECT_TIMEOUT_SECONDS,
                sock_read=WATCH_SILENCE_SECONDS,
            )
            async with session.get(url, timeout=silence, **options) as answer:
                code = answer.status
                if code >= 300:
                    body = await answer.read()
                    raise errors.from_answer(attempt, code, answer.headers, body)
                splitter = lines.Splitter()
                async for chunk in answer.content.iter_any():
                    for line in splitter.feed(chunk):
                        yield wire.parsed_event(line, attempt)
        except _NETWORK_ERRORS as error:
            raise _unavailable(attempt, error) from error
        finally:
            self._observe("WATCH", wire.resource_of(path), code)

    def _watch_query(
        self, resource_version: str, query: Mapping[str, str] | None
    ) -> dict[str, str]:
        return {
            **(query or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(self._random.randint(*WATCH_SECONDS)),
        }

    def _reopen_wait(self, failures: int, asked: float | None) -> float:
        first, longest = REOPEN_SECONDS
        backoff = min(longest, first * 2 ** min(failures, 16))
        return (asked or 0.0) + self._random.uniform(backoff / 2, backoff)


@dataclass(frozen=True, slots=True)
class _Server:
    """Where a login leads: connections are shared by logins with the same endpoint.

    Attributes:
        base: what stands before each path.
    """

    login: credentials.Login
    endpoint: connections.Endpoint
    host: str
    base: str
    authorization: tuple[tuple[str, str], ...]


def _server_of(login: credentials.Login) -> _Server:
    """The server of a new login; raises ValueError where no request can be made of it."""
    url = urllib.parse.urlsplit(login.server)
    token = _sendable(login.token, "token") if login.token else None
    return _Server(
        login=login,
        endpoint=connections.Endpoint(
            host=url.hostname or "",
            port=url.port or (80 if login.ssl is None else 443),
            tls=login.ssl,
            server_name=login.server_name,
        ),
        host=url.netloc.rpartition("@")[2],
        base=url.path,
        authorization=(("Authorization", f"Bearer {token}"),) if token else (),
    )


def _target(server: _Server, path: str, query: Mapping[str, str] | None) -> str:
    """Path and query as they go out; raises ValueError where the path is none."""
    target = server.base + path
    if query:
        target += "?" + urllib.parse.urlencode(query)
    if " " in target:
        raise ValueError("the path holds a blank")
    return _sendable(target, "path")


def _sendable(text: str, what: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    raise ValueError(f"the {what} holds what cannot be sent")


def _prepared(
    login: credentials.Login, path: str, query: Mapping[str, str] | None
) -> tuple[yarl.URL, dict[str, Any]]:
    """What the full HTTP client is told."""
    headers = {"Accept": port.JSON}
    if login.token:
        headers["Authorization"] = f"Bearer {login.token}"
    url = yarl.URL(login.server + path, encoded=True)
    options: dict[str, Any] = {"headers": headers, "proxy": login.proxy}
    options["allow_redirects"] = False  # a redirect would carry the token elsewhere
    if login.ssl is not None:
        options |= {"ssl": login.ssl, "server_hostname": login.server_name}
    return url.with_query(query) if query else url, options


#: What may be sent again where a kept connection was cut (RFC 9110, 9.2.2).
_REPEATABLE = ("GET", "PUT", "DELETE")

# ssl.SSLError and socket errors are OSErrors; ValueError is what a broken URL or header gives.
_NETWORK_ERRORS = (aiohttp.ClientError, OSError, ValueError)

_NEVER_SENT = (
    connections.NotConnected,
    ValueError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
)


def _unavailable(attempt: str, error: Exception) -> errors.Unavailable:
    told = f"{type(error).__name__}: {error}"
    if isinstance(error, _TOLD_ALREADY):
        told = str(error)
    elif isinstance(error, TimeoutError):
        told = "timed out"
    return errors.Unavailable(f"{attempt}: {told}", sent=not isinstance(error, _NEVER_SENT))


_TOLD_ALREADY = (connections.NotConnected, http1.Cut, http1.NotHttp)


async def _read(answer: aiohttp.ClientResponse, most_bytes: int | None) -> bytes:
    """The body; raises http1.TooLarge."""
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if most_bytes is not None and size > most_bytes:
            raise http1.TooLarge(f"an answer of more than {most_bytes} bytes")
    return b"".join(parts)


async def _end(task: asyncio.Task[bytes]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _now() -> float:
    return asyncio.get_running_loop().time()
