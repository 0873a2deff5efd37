"""Connects to one server: address, login, TLS, Sentinel, and a greeting.

Makes pools of redis-py connections; nothing connects before the first command. RESP2 is pinned
(reply shapes differ under RESP3), and the library retries no command: if a reply was lost, the
script may have been applied.

Passwords, CA and certificates are read from their files again at each connection: they may be
rotated. Each new connection asks the server for its identity (``greeting``).

Timeouts are ours (``asyncio.timeout``), not redis-py's ``socket_timeout``: with that one set
it sends under ``asyncio.wait_for``, which on Python 3.11 loses a cancellation that arrives while
the bytes go out (python/cpython#81839).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.connection
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.backoff
import redis.exceptions

from duepoint import errors, redisurl, tlsrules

CONNECT_TIMEOUT_SECONDS = 5.0
#: A Sentinel that does not answer for this long is skipped.
_SENTINEL_TIMEOUT_SECONDS = 2.0
LEAST_VERSION = (7, 0)

Host = tuple[str, int]


class FilePassword(redis.CredentialProvider):
    """A password that may be rotated: the file is read again at each connection."""

    def __init__(self, username: str | None, file: Path) -> None:
        self._username = username
        self._file = file

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = self._file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as garbage:
            raise redis.exceptions.AuthenticationError(
                f"{self._file} contains no password: it is not UTF-8 text"
            ) from garbage
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """Return the same; the library's own method logs a warning at each connection."""
        return self.get_credentials()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The TLS files that verify the servers, which is always done, and identify us."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return a new context, for each connection; raises OSError for a missing or bad file."""
        context = tlsrules.client_context(cafile=self.ca_file, server_name=self.server_name)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, tlsrules.key_beside(self.cert_file))
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the servers are and how to log in.

    Attributes:
        url: see ``redisurl``; a user or a password in it is for the servers, not for Sentinels.
        username: overrides the one in the URL.
        password_file: overrides a password in the URL.
        tls: used for rediss URLs, of Sentinels and servers alike.
    """

    url: str
    username: str | None = None
    password_file: Path | None = None
    tls: TlsFiles = TlsFiles()
    sentinel_password_file: Path | None = None

    def address(self) -> redisurl.Address:
        """Return the parsed URL; raises InvalidSetting if it is invalid or the files do not fit."""
        try:
            address = redisurl.parse(self.url)
        except ValueError as error:
            raise errors.InvalidSetting("redis_url", str(error)) from None
        if self.tls != TlsFiles() and not address.tls:
            raise errors.InvalidSetting(
                "redis_url", "is not encrypted, but TLS files or a server name are set;"
                " use rediss:// instead of redis://, or unset them",
            )  # fmt: skip
        return address


Greet = Callable[[redis.asyncio.Connection], Awaitable[None]]


#: The message of ``ServerChanged``.
ASK_AGAIN = "the server was replaced; try again"


class ServerChanged(redis.exceptions.ConnectionError):
    """Not sent: the server changed after this command was prepared."""


class _ReadAtEachConnection(redis.asyncio.connection.RedisSSLContext):
    """The library's holder of a TLS context, but with a context made at each connection."""

    def __init__(self, tls: TlsFiles) -> None:
        super().__init__()
        self._tls = tls

    def get(self) -> ssl.SSLContext:
        return self._tls.context()


class _TlsConnection(redis.asyncio.SSLConnection):
    """A connection that reads its certificates when it connects."""

    def __init__(self, *, tls: TlsFiles, **named: Any) -> None:  # noqa: ANN401
        super().__init__(**named)
        self.ssl_context = _ReadAtEachConnection(tls)


class _ToPrimaryTls(redis.asyncio.sentinel.SentinelManagedConnection, _TlsConnection):
    """Asks Sentinel for the primary whenever it connects, encrypted."""


class _SentinelPool(redis.asyncio.sentinel.SentinelConnectionPool):
    """The library's pool, but it owns its Sentinels and closes them."""

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


class _NoAnswer(redis.exceptions.ConnectionError):
    """Why a Sentinel does not name the primary; the library asks the next one."""

    def __repr__(self) -> str:
        return str(self)


class _Sentinel(redis.asyncio.Redis):
    """One Sentinel; its ``repr``, which the library's error shows, is its address."""

    def __repr__(self) -> str:
        to = self.connection_pool.connection_kwargs
        return f"{to['host']}:{to['port']}"

    async def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        try:
            async with asyncio.timeout(_SENTINEL_TIMEOUT_SECONDS):
                return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except TimeoutError:
            raise _NoAnswer("no answer") from None
        except redis.exceptions.RedisError as error:
            raise _NoAnswer(str(error)) from error


def make_pool(server: Server, host: Host | None, greet: Greet) -> redis.asyncio.ConnectionPool:
    """Return a pool to this host; None = the server of the URL. Does not connect."""
    address = server.address()
    named = _usual(server) | {"db": address.database, "redis_connect_func": greet}
    username = server.username or address.username
    if server.password_file is not None:
        named["credential_provider"] = FilePassword(username, server.password_file)
    else:
        named |= {"username": username, "password": address.password}
    if address.path:
        unix = redis.asyncio.UnixDomainSocketConnection
        del named["connection_class"]
        return redis.asyncio.ConnectionPool(unix, path=address.path, **named)
    if host is None and address.kind is redisurl.ServerKind.SENTINEL:
        plain = redis.asyncio.sentinel.SentinelManagedConnection
        named["connection_class"] = _ToPrimaryTls if address.tls else plain
        return _SentinelPool(address.primary, _sentinels(server), **named)  # type: ignore[no-untyped-call]
    name, port = host or address.hosts[0]
    return redis.asyncio.ConnectionPool(host=name, port=port, **named)


def _usual(server: Server) -> dict[str, Any]:
    is_tls = server.address().tls
    return {
        "connection_class": _TlsConnection if is_tls else redis.asyncio.Connection,
        "protocol": 2,
        "driver_info": None,  # unused text at each connection
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "retry": redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
    } | ({"tls": server.tls} if is_tls else {})


def _sentinels(server: Server) -> redis.asyncio.sentinel.Sentinel:
    named = _usual(server)
    if server.sentinel_password_file is not None:
        named["credential_provider"] = FilePassword(
            server.address().sentinel_username or None, server.sentinel_password_file
        )
    made = redis.asyncio.sentinel.Sentinel([])  # type: ignore[no-untyped-call]
    made.sentinels = [  # its own arguments cannot set another name to verify
        _Sentinel.from_pool(redis.asyncio.ConnectionPool(host=name, port=port, **named))
        for name, port in server.address().hosts
    ]
    return made


async def greeting(
    client: redis.asyncio.Redis, connection: redis.asyncio.Connection
) -> Mapping[str, Any]:
    """Log in and ask the server for its identity; return its INFO.

    Raises a ConnectionError of the library for a server that cannot be used.
    """
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            await connection.on_connect()
            await connection.send_command("INFO", check_health=False)
            said: Mapping[str, Any] = await client.parse_response(connection, "INFO")
    except TimeoutError:  # the library cleans up after errors of its own only
        raise redis.exceptions.TimeoutError("the server does not answer") from None
    except redis.exceptions.NoPermissionError as error:
        raise redis.exceptions.ConnectionError(
            f"{error}; this Redis user may not run INFO; grant it +info",
            status_code=error.status_code,
        ) from error
    except redis.exceptions.ResponseError as error:
        # Before our first command, any error means that the server refuses us.
        refusal = redis.exceptions.ConnectionError(*error.args, status_code=error.status_code)
        raise refusal from error
    problem = version_problem(said)
    if problem:
        raise redis.exceptions.ConnectionError(problem)
    return said


def replica_hosts(said: Mapping[str, Any]) -> list[Host]:
    """Return the replicas in INFO, without those that have no readable address."""
    entries = [said.get(f"slave{number}") for number in range(int(said.get("connected_slaves", 0)))]
    return [(str(each["ip"]), int(each["port"])) for each in entries if isinstance(each, Mapping)]


def version_problem(said: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the version in INFO; None if nothing is."""
    text = str(said.get("redis_version", "0"))
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version >= LEAST_VERSION:
        return None
    return f"the server is version {text}; at least 7.0 (or any Valkey) is needed"
