"""The connections to an API server.

Requests use ``net.httpclient``; those for the Lease have connections of their own, so that they
never wait behind others. aiohttp is used for watches, which are read while they arrive, and for
servers behind an HTTP proxy. A rotated token uses the existing connections; another server, or
another certificate, gets new ones. Every method raises the errors of its library
(``NETWORK_ERRORS``); ``was_sent`` and ``wording`` interpret them.
"""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import yarl

from duepoint.kube import credentials, port
from duepoint.net import httpclient

CONNECT_TIMEOUT_SECONDS = httpclient.CONNECT_SECONDS
#: Work that is due every minute can reuse connections: a handshake costs as much as several Jobs.
#: An API server closes connections that were unused for 90 s.
KEPT_SECONDS = 75.0
#: Concurrent requests; more only queue up at the API server (measured: 32 reach its ceiling).
REQUEST_CONNECTIONS = 32
_LEASE_CONNECTIONS = 4
#: Bookmarks come about once a minute: a watch that is silent for longer is dead (K6).
WATCH_SILENCE_SECONDS = 70.0

# ssl.SSLError and socket errors are OSErrors; a broken URL or header raises ValueError.
NETWORK_ERRORS = (aiohttp.ClientError, OSError, ValueError)

_NEVER_SENT = (
    httpclient.NotConnected,
    ValueError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request; ``deadline`` is on the loop's clock."""

    verb: str
    path: str
    deadline: float
    data: bytes | None = None
    query: Mapping[str, str] | None = None
    content_type: str = port.JSON
    accept: str = port.JSON
    most_bytes: int | None = None

    @property
    def attempt(self) -> str:
        return f"{self.verb} {self.path}"

    @property
    def is_of_lease(self) -> bool:
        """Whether it must not wait behind others: the leader would lose its Lease."""
        return port.resource_of(self.path) == "leases"


class Transport:
    """The connections of one session, for one event loop."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._requests = _pool(REQUEST_CONNECTIONS)
        self._lease = _pool(_LEASE_CONNECTIONS)
        self._login: credentials.Login | None = None
        self._endpoint = httpclient.Endpoint(host="", port=0)
        self._base = ""  # the prefix of each path
        self._headers: tuple[tuple[str, str], ...] = ()
        self._aiohttp: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._requests.close()
        self._lease.close()
        session, self._aiohttp = self._aiohttp, None
        if session is not None:
            await session.close()

    async def send(self, request: ApiRequest, login: credentials.Login) -> httpclient.Response:
        """Send a request and return the response."""
        if login.proxy is not None:
            return await self._send_by_proxy(request, login)
        if self._login is not login:
            self._use_login(login)
        headers = [*self._headers, ("Accept", request.accept)]
        if request.data is not None:
            headers.append(("Content-Type", request.content_type))
        target = self._base + request.path
        if request.query:
            target += "?" + urllib.parse.urlencode(request.query)
        if " " in target:
            raise ValueError("the path contains a space")
        pool = self._lease if request.is_of_lease else self._requests
        return await pool.send(
            self._endpoint,
            httpclient.request_bytes(
                httpclient.request_head(request.verb, _sendable(target, "path"), ()),
                headers,
                request.data,
            ),
            deadline=request.deadline,
            connect_by=request.deadline,
            rule=httpclient.BodyRule(request.most_bytes),
        )

    def _use_login(self, login: credentials.Login) -> None:
        """Use a new login; logins with the same endpoint share connections.

        Raises ValueError if no request can be made with it.
        """
        url = urllib.parse.urlsplit(login.server)
        headers = [("Host", url.netloc.rpartition("@")[2]), ("User-Agent", self._agent)]
        if login.token:
            headers.append(("Authorization", f"Bearer {_sendable(login.token, 'token')}"))
        self._headers = tuple(headers)
        self._endpoint = httpclient.Endpoint(
            host=url.hostname or "",
            port=url.port or (80 if login.ssl is None else 443),
            tls=login.ssl,
            server_name=login.server_name,
        )
        self._base = url.path
        self._login = login

    @contextlib.asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str],
        login: credentials.Login,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a GET and yield the response, whose body is read while it arrives."""
        url, options = _prepared(login, path, query)
        silence = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=WATCH_SILENCE_SECONDS
        )
        async with self._session().get(url, timeout=silence, **options) as response:
            yield response

    async def _send_by_proxy(
        self, request: ApiRequest, login: credentials.Login
    ) -> httpclient.Response:
        url, options = _prepared(login, request.path, request.query)
        options["headers"]["Accept"] = request.accept
        if request.data is not None:
            options["headers"]["Content-Type"] = request.content_type
        async with (
            asyncio.timeout_at(request.deadline),
            self._session().request(request.verb, url, data=request.data, **options) as response,
        ):
            body = await _read(response, request.most_bytes)
            return httpclient.Response(response.status, response.headers, body, keep_alive=True)

    def _session(self) -> aiohttp.ClientSession:
        if self._aiohttp is None:
            self._aiohttp = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
                headers={
                    "User-Agent": self._agent,
                    # Compressing the pages of a long list would take longer than sending them.
                    "Accept-Encoding": "identity",
                },
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._aiohttp


def was_sent(error: Exception) -> bool:
    """Whether the request may have reached the server."""
    return not isinstance(error, _NEVER_SENT)


def wording(error: Exception) -> str:
    """Return the error as text for messages."""
    if isinstance(error, httpclient.NotConnected | httpclient.Cut | httpclient.NotHttp):
        return str(error)
    return "timed out" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"


def _pool(most: int) -> httpclient.Pool:
    return httpclient.Pool(httpclient.connect, keep_seconds=KEPT_SECONDS, most_open=most)


def _sendable(text: str, what: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    raise ValueError(f"the {what} contains characters that cannot be sent")


def _prepared(
    login: credentials.Login, path: str, query: Mapping[str, str] | None
) -> tuple[yarl.URL, dict[str, Any]]:
    """Return the URL and options for aiohttp."""
    headers = {"Accept": port.JSON}
    if login.token:
        headers["Authorization"] = f"Bearer {login.token}"
    url = yarl.URL(login.server + path, encoded=True)
    options: dict[str, Any] = {"headers": headers, "proxy": login.proxy}
    options["allow_redirects"] = False  # a redirect would carry the token elsewhere
    if login.ssl is not None:
        options |= {"ssl": login.ssl, "server_hostname": login.server_name}
    return url.with_query(query) if query else url, options


async def _read(answer: aiohttp.ClientResponse, most_bytes: int | None) -> bytes:
    """Read the body; raises httpclient.TooLarge."""
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if most_bytes is not None and size > most_bytes:
            raise httpclient.TooLarge(f"an answer of more than {most_bytes} bytes")
    return b"".join(parts)
