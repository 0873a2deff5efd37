"""Sessions with a real API server: connections, credentials, timeouts, lists and watches.

They use raw HTTP with typed decoding, because that costs a third of the official client's CPU for a
request and a fortieth for a watch event; ``transport`` has the connections. Every request ends
within its timeout, with bytes or a ``kube.errors.ApiError``. After a 401 the session reads the
credentials again, once. After a 429 all requests of the session wait, except those for the Lease.
Requests, watches and the Lease have separate connections, so that none waits behind another. The
caller decides which failures to retry, because it knows whether a write may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import prometheus_client

import duepoint
from duepoint import errors as base
from duepoint import faults, telemetry
from duepoint.faults import FaultPoint
from duepoint.kube import credentials, errors, port, transport
from duepoint.net import httpclient

#: How long one page of a list may take.
_PAGE_SECONDS = 60.0
#: The largest page that is read, unless it has only one object: an API server limits pages by
#: objects and not by bytes, and an object may have a megabyte.
MOST_PAGE_BYTES = 8 * 1024 * 1024
#: After a page that was too large, the next request asks for this many times fewer objects.
_PAGE_DIVISOR = 8
#: The API server ends a watch after a time in this range; jitter keeps replicas apart.
WATCH_SECONDS = (240, 360)
#: Waits between attempts to reopen a watch, doubled each time, with full jitter.
REOPEN_SECONDS = (0.2, 30.0)
_random = random.Random()  # noqa: S311 - jitter

ItemT = TypeVar("ItemT", bound=port.KubeObject)


@functools.cache
def _requests(verb: str, resource: str, code: int) -> prometheus_client.Counter:
    """Return the counter of requests that ended with this code; 0 = there was no answer."""
    return telemetry.api_requests_total.labels(verb, resource, str(code))


class ApiSession(contextlib.AbstractAsyncContextManager["ApiSession"]):
    """A ``port.Api`` over HTTP. Use it as an async context manager, on one event loop."""

    def __init__(
        self,
        access: credentials.Credentials,
        *,
        component: str,
        connections: transport.Transport | None = None,
    ) -> None:
        """``connections``: shared ones, which ``close`` leaves open; None = open new ones."""
        self._access = access
        self._is_shared = connections is not None
        self._transport = connections or transport.Transport(agent_of(component))
        self._throttled_until = 0.0

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests in flight fail with Unavailable."""
        if not self._is_shared:
            await self._transport.close()

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
    ) -> bytes:
        """See ``port.Api.request``."""
        answer = await self._send(
            transport.ApiRequest(
                verb=verb,
                path=path,
                data=body if body is None or isinstance(body, bytes) else msgspec.json.encode(body),
                query=query,
                content_type=content_type,
                accept=accept,
                deadline=_now() + timeout_seconds,
            )
        )
        return answer.body

    async def time_us(self) -> int:
        """See ``port.TimedApi.time_us``."""
        deadline = _now() + port.REQUEST_TIMEOUT_SECONDS
        call = transport.ApiRequest(verb="GET", path="/version", deadline=deadline)
        date = (await self._send(call)).headers.get("date", "")
        try:
            seconds = email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError) as error:
            raise errors.Unavailable(f"{call.attempt}: its answer carries no time") from error
        return int(seconds * 1e6) + 500_000  # the header has whole seconds: add half of one

    async def _send(self, call: transport.ApiRequest) -> httpclient.Response:
        """Send a request; again after a 401, once, and after a 429, until its deadline."""
        renewed = False
        while True:
            await self._wait_while_throttled(call)
            try:
                return await self._send_once(call)
            except errors.Unauthorized:
                if renewed or not await self._renew_login(call.deadline):
                    raise
                renewed = True
            except errors.Throttled as error:
                # Up to a quarter longer, so that the waiting requests are not all sent at once.
                seconds = (error.retry_after_seconds or 1.0) * (1 + _random.random() / 4)
                self._throttled_until = max(self._throttled_until, _now() + seconds)
                if self._throttled_until >= call.deadline or call.is_of_lease:
                    raise

    async def _send_once(self, call: transport.ApiRequest) -> httpclient.Response:
        code = 0
        try:
            login = await self._login(call.deadline)
            await faults.reach(FaultPoint.BEFORE_API_REQUEST)
            answer = await self._transport.send(call, login)
            await faults.reach(FaultPoint.AFTER_API_RESPONSE)
            code = answer.status
            if code >= 300:
                raise errors.from_answer(call.attempt, code, answer.headers, answer.body)
        except httpclient.TooLarge:
            raise
        except transport.NETWORK_ERRORS as error:
            raise _unavailable(call.attempt, error) from error
        else:
            return answer
        finally:
            _requests(call.verb, port.resource_of(call.path), code).inc()

    async def _login(self, deadline: float) -> credentials.Login:
        if (login := self._access.known()) is not None:
            return login
        try:
            async with asyncio.timeout_at(deadline):
                return await self._access.login()
        except base.InvalidSetting as error:  # the credential plugin has worked before
            raise errors.Unauthorized(str(error), sent=False) from error

    async def _renew_login(self, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._access.renew()
        except (TimeoutError, base.InvalidSetting):
            return False

    async def _wait_while_throttled(self, call: transport.ApiRequest) -> None:
        if call.is_of_lease:
            return
        left = self._throttled_until - _now()
        if left <= 0:
            return
        if self._throttled_until >= call.deadline:
            raise errors.Throttled(
                f"{call.attempt}: not sent, the API server asked to wait",
                status=429,
                sent=False,
                retry_after_seconds=left,
            )
        await asyncio.sleep(left)

    # -- lists -----------------------------------------------------------------------------

    async def list_pages(
        self,
        path: str,
        item_type: type[ItemT],
        *,
        limit: int = port.PAGE_LIMIT,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.ListPage[ItemT]]:
        """See ``port.Api.list_pages``."""
        decoder = _page_decoder(item_type)
        parameters = dict(query or {})
        async with contextlib.AsyncExitStack() as prefetch:
            body, limit = await self._page(path, parameters, limit)
            while True:
                await faults.reach(FaultPoint.AFTER_LIST_PAGE)
                page = port.decoded(decoder, body, f"GET {path}")
                parameters = {**parameters, "continue": page.metadata.continue_token}
                parameters.pop("resourceVersion", None)  # the token names the version
                parameters.pop("resourceVersionMatch", None)
                if not page.metadata.continue_token:
                    yield page
                    return
                # The API server works on the next page while this one is being read.
                next_page = asyncio.create_task(self._page(path, parameters, limit))
                prefetch.push_async_callback(_cancel, next_page)
                yield page
                del page, body  # otherwise three pages would be in memory
                body, limit = await next_page
                prefetch.pop_all()

    async def page(
        self, path: str, item_type: type[ItemT], *, limit: int, continue_token: str = ""
    ) -> port.ListPage[ItemT]:
        """Return a page of a list: at most ``limit`` objects, and fewer if they are large.

        Args:
            continue_token: from the page before; empty = the first page. Raises Gone if too old.
        """
        parameters = {"continue": continue_token} if continue_token else {}
        body, _ = await self._page(path, parameters, limit)
        return port.decoded(_page_decoder(item_type), body, f"GET {path}")

    async def _page(self, path: str, query: Mapping[str, str], limit: int) -> tuple[bytes, int]:
        """Return a page of a list, and the number of objects to request in the next one."""
        while True:
            call = transport.ApiRequest(
                verb="GET",
                path=path,
                query={**query, "limit": str(limit)},
                deadline=_now() + _PAGE_SECONDS,
                most_bytes=MOST_PAGE_BYTES if limit > 1 else None,
            )
            try:
                return (await self._send(call)).body, limit
            except httpclient.TooLarge:
                limit = max(1, limit // _PAGE_DIVISOR)

    # -- watches ---------------------------------------------------------------------------

    async def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.WatchEvent[ItemT]]:
        """See ``port.Api.watch``."""
        decoder = msgspec.json.Decoder(item_type)
        failures, renewed = 0, False
        while True:
            try:
                async for event in self._events(path, resource_version, query):
                    failures, renewed = 0, False
                    resource_version = port.next_version(event, resource_version, path)
                    if event.type in port.ChangeType.__members__:
                        item = port.decoded(decoder, event.object, f"WATCH {path}")
                        yield port.WatchEvent(port.ChangeType(event.type), item)
            except errors.Unauthorized:
                if renewed or not await self._renew_login(
                    _now() + transport.CONNECT_TIMEOUT_SECONDS
                ):
                    raise
                renewed = True
            except errors.Unavailable as error:
                failures += 1
                first, longest = REOPEN_SECONDS
                backoff = min(longest, first * 2 ** min(failures, 16))
                jittered = _random.uniform(backoff / 2, backoff)
                await asyncio.sleep((error.retry_after_seconds or 0.0) + jittered)
            else:
                # A server that closes each watch at once must not be asked in a tight loop.
                await asyncio.sleep(_random.uniform(0.05, REOPEN_SECONDS[0]))

    async def _events(
        self, path: str, resource_version: str, query: Mapping[str, str] | None
    ) -> AsyncIterator[port.WatchLine]:
        attempt = f"WATCH {path}"
        code = 0
        try:
            login = await self._login(_now() + transport.CONNECT_TIMEOUT_SECONDS)
            watched = {
                **(query or {}),
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": resource_version,
                "timeoutSeconds": str(_random.randint(*WATCH_SECONDS)),
            }
            async with self._transport.stream(path, watched, login) as answer:
                await faults.reach(FaultPoint.AFTER_WATCH_OPENED)
                code = answer.status
                if code >= 300:
                    body = await answer.read()
                    raise errors.from_answer(attempt, code, answer.headers, body)
                splitter = port.LineSplitter()
                async for chunk in answer.content.iter_any():
                    for line in splitter.feed(chunk):
                        await faults.reach(FaultPoint.AFTER_WATCH_EVENT)
                        yield port.parsed_event(line, attempt)
        except transport.NETWORK_ERRORS as error:
            raise _unavailable(attempt, error) from error
        finally:
            _requests("WATCH", port.resource_of(path), code).inc()


def _page_decoder(item_type: type[ItemT]) -> msgspec.json.Decoder[port.ListPage[ItemT]]:
    return msgspec.json.Decoder(port.ListPage[item_type])  # type: ignore[valid-type]


def agent_of(component: str) -> str:
    """Return the user agent of one of our components."""
    return f"duepoint/{duepoint.__version__} ({component})"


def _unavailable(attempt: str, error: Exception) -> errors.Unavailable:
    text = f"{attempt}: {transport.wording(error)}"
    return errors.Unavailable(text, sent=transport.was_sent(error))


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- sessions of users -----------------------------------------------------------------------------


class UserSessions:
    """Creates sessions that act for a user, with the token from the user's request.

    The API server checks each request of such a session against the rights of the token's owner,
    and its audit log names them. We send neither our token nor our certificate, which an API
    server would prefer to any token. The sessions share their connections, because a token is only
    a header; each session lasts for one request.
    """

    def __init__(self, access: credentials.Credentials, *, component: str) -> None:
        """``access``: our own credentials; they name the API server and how to verify it."""
        self._access = access
        self._component = component
        self._connections = transport.Transport(agent_of(component))
        self._own_login: credentials.Login | None = None
        self._anonymous: credentials.Login | None = None

    async def of(self, token: str) -> ApiSession:
        """Return a session for the owner of this token; raises errors.InvalidSetting."""
        login = replace(await self._anonymous_login(), token=token)
        return ApiSession(
            credentials.Credentials(login),
            component=self._component,
            connections=self._connections,
        )

    async def _anonymous_login(self) -> credentials.Login:
        """Return our login without our identity; creates its TLS context again if ours changed."""
        own = replace(await self._access.login(), token=None)
        if self._anonymous is None or self._own_login != own:
            self._own_login = own
            self._anonymous = credentials.with_context(
                replace(own, certificate_file=None, key_file=None, ssl=None)
            )
        return self._anonymous

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        await self._connections.close()
