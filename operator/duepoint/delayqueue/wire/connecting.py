"""How to connect to one server: address, login, TLS, Sentinel, and what is asked of it at once.

Makes pools of connections; nothing connects before the first command. RESP2 is pinned (reply
shapes differ under RESP3); no command is repeated by the library (a lost reply may hide an applied
script); a cancelled or timed-out command closes its connection, so that no later command reads a
reply that is not its own (redis-py does that, and a test holds it to it).

Passwords, CA and certificates are read from their files again at each connection: they may be
rotated. Each new connection asks the server who it is (``Greeting``): one that is too old or a mere
replica is refused there in one clear sentence, and one that is not the process it was is noticed.

Commands time out after five seconds, half of the shortest sensible lease. The limit is ours
(``timelimits``), not redis-py's ``socket_timeout``: with that one set it sends under
``asyncio.wait_for``, which on Python 3.11 loses a cancellation that arrives while the bytes go out
(python/cpython#81839): the task then goes on as if nothing had been said.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hiredis
import redis
import redis.asyncio
import redis.asyncio.connection
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.backoff
import redis.exceptions

from duepoint import errors, redisurl, tlsrules

CONNECT_TIMEOUT_SECONDS = 5.0
#: How long a request waits for a connection while all are in use, and how often it does so as
#: long as the server answers others.
_POOL_TIMEOUT_SECONDS = 5.0
_WAITS_FOR_CONNECTION = 3
#: An idle connection that does not answer for so long is dead.
_PROBE_TIMEOUT_SECONDS = 2.0
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
                f"{self._file} holds no password: it is not UTF-8 text"
            ) from garbage
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same: the library's own warns in the log at each connection."""
        return self.get_credentials()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """How the servers prove who they are, and how we do; always verified."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """Made anew for each connection; raises OSError where a file is missing or no PEM."""
        context = tlsrules.client_context(cafile=self.ca_file, server_name=self.server_name)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the servers are and how to log in.

    Attributes:
        url: see ``redisurl``; a user or a password in it is for the servers, not for Sentinels.
        username: wins over the one in the URL.
        password_file: wins over a password in the URL.
        tls: counts for rediss URLs, of Sentinels and servers alike.
    """

    url: str
    username: str | None = None
    password_file: Path | None = None
    tls: TlsFiles = TlsFiles()
    sentinel_username: str | None = None
    sentinel_password_file: Path | None = None

    def address(self) -> redisurl.Address:
        """What the URL says; raises InvalidSetting where it or the files do not fit it."""
        try:
            address = redisurl.parse(self.url)
        except ValueError as error:
            raise errors.InvalidSetting("redis_url", str(error)) from None
        if self.tls != TlsFiles() and not address.tls:
            raise errors.InvalidSetting(
                "redis_url", "is not encrypted, but TLS files or a server name are set;"
                " write rediss instead of redis, or leave them out",
            )  # fmt: skip
        if self.tls.key_file is not None and self.tls.cert_file is None:
            raise errors.InvalidSetting(
                "redis_key_file", "is set without redis_cert_file; set both, or neither"
            )
        return address


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a server said of itself when we connected."""

    run_id: str
    replication_id: str
    is_replica: bool
    replicas: int
    replica_hosts: tuple[Host, ...] = ()


Greet = Callable[[redis.asyncio.Connection], Awaitable[None]]


class ServerChanged(redis.exceptions.ConnectionError):
    """Nothing was sent, because it was thought out for the server that was here before."""


class RedisPool(redis.asyncio.BlockingConnectionPool):
    """Connections to one server; idle ones can be asked whether they still live.

    The library creates connections, connects them and lets requests wait for one. While none
    waits, idle connections are kept here, where handing one out costs a look at it: to the library
    they are in use. Once a request has to wait, they are returned, until no request waits any more.

    Attributes:
        upheavals: how often the server turned out to be another one. Who asked for a connection
            before that gets none: what it is about to send was thought out for the other server.
        answers: how many calls it has answered. While it answers, a connection is waited for.
    """

    upheavals = 0
    answers = 0
    #: Where Sentinel said that the primary is; None where it was not asked.
    primary: Host | None = None

    def __init__(self, **named: Any) -> None:  # noqa: ANN401 - the library's own
        super().__init__(**named)
        self._asking = 0
        self._kept: list[Any] = []
        self._returned: set[Any] = set()
        pack_in_c(self)

    @property
    def idle(self) -> tuple[Any, ...]:
        """The connections that no request uses, the one used last at the end."""
        return (*self._returned, *self._kept)

    async def get_connection(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        if (idle := await self._idle()) is not None:
            return idle
        before = self.upheavals
        self._asking += 1
        try:
            while self._kept:
                await self._return(self._kept.pop(0))
            connection = await self._wait_for_connection(*args, **named)
        finally:
            self._asking -= 1
            if not self._asking:
                self._take_back()
        if self.upheavals != before:
            await connection.disconnect(nowait=True)
            await self.release(connection)
            raise ServerChanged("the server is not the one it was; ask again")
        return connection

    async def _wait_for_connection(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        """As the library does; a pool that is busy with a good server is no trouble of that one."""
        for _ in range(_WAITS_FOR_CONNECTION - 1):
            answers = self.answers
            try:
                return await self._of_library(*args, **named)
            except redis.exceptions.ConnectionError as error:
                was_full = isinstance(error.__cause__, asyncio.TimeoutError)
                if not was_full or self.answers == answers:
                    raise
        return await self._of_library(*args, **named)

    async def _of_library(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        connection = await super().get_connection(*args, **named)  # type: ignore[no-untyped-call]
        self._returned.discard(connection)
        return connection

    async def release(self, connection: Any) -> None:  # noqa: ANN401
        """Without a waiting request this only changes a list: the library's own takes 0.1 ms."""
        if not self._asking and not connection.should_reconnect():
            self._kept.append(connection)
            return
        await self._return(connection)
        if not self._asking:
            self._take_back()

    async def disconnect(self, inuse_connections: bool = True) -> None:  # noqa: FBT001, FBT002
        """As the library does, to which the connections that are kept here are in use."""
        await super().disconnect(inuse_connections)
        await self.drop_idle()

    async def _return(self, connection: Any) -> None:  # noqa: ANN401
        """Give it to the library, which hands it to a request that waits."""
        self._returned.add(connection)
        try:
            await super().release(connection)
        except BaseException:
            self._returned.discard(connection)
            raise

    def _take_back(self) -> None:
        """Keep what the library has been given and no request has taken."""
        for _ in range(len(self._returned)):
            connection = self.get_available_connection()  # type: ignore[no-untyped-call]
            self._kept.insert(0, connection)
        self._returned.clear()

    async def _idle(self) -> Any:  # noqa: ANN401 - a connection of the library's, or None
        """The connection used last, if it is good as it is and no request waits already.

        Nothing here gives way to another task. Everything else is the library's: to wait, to
        connect, to look at a connection that has something to say.
        """
        if self._asking or not self._kept:
            return None
        connection = self._kept[-1]
        if not connection.is_connected or await _has_news(connection):
            return None
        return self._kept.pop()

    async def drop_idle(self) -> None:
        """Close what is idle.

        No other task runs meanwhile: the library's ``disconnect`` waits for each connection to be
        closed, and one that is only half closed looks as good as new to who asks for one then.
        """
        for connection in self.idle:
            await connection.disconnect(nowait=True)

    async def probe(self, command: tuple[Any, ...]) -> None:
        """Ask each idle connection; those that do not answer are closed."""
        asked = [each for each in self._kept if each.is_connected]
        self._kept = [each for each in self._kept if not each.is_connected]
        await asyncio.gather(*(self._probe(connection, command) for connection in asked))

    async def _probe(self, connection: Any, command: tuple[Any, ...]) -> None:  # noqa: ANN401
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS):
                await connection.send_command(*command)
                await connection.read_response()
        except redis.exceptions.ResponseError:
            pass  # an answer all the same
        except (redis.exceptions.RedisError, OSError):
            await connection.disconnect(nowait=True)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            # Not first where one is wanted: what was used last is what is used next.
            await self.release(connection)
            self._kept.sort(key=lambda each: each is not connection)


async def _has_news(connection: Any) -> bool:  # noqa: ANN401 - of the library
    """Whether there are unexpected bytes, or the other side hung up."""
    try:
        return bool(await connection.can_read())
    except (redis.exceptions.RedisError, OSError):
        return True


class _ReadAtEachConnection(redis.asyncio.connection.RedisSSLContext):
    """The library's holder of a TLS context, with one that is made when it connects."""

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


class _ToPrimary(redis.asyncio.sentinel.SentinelManagedConnection):
    """Asks Sentinel for the primary whenever it connects."""


class _ToPrimaryTls(redis.asyncio.sentinel.SentinelManagedConnection, _TlsConnection):
    """The same, encrypted."""


class _SentinelPool(RedisPool):
    """Connections to the server that Sentinel calls the primary at the time."""

    is_master = True
    check_connection = False

    def __init__(self, find: Callable[[], Awaitable[Host]], **named: Any) -> None:  # noqa: ANN401
        super().__init__(**named)
        self._find = find
        self.connection_kwargs["connection_pool"] = weakref.proxy(self)

    async def get_master_address(self) -> Host:
        self.primary = await self._find()
        return self.primary


def make_pool(
    server: Server, host: Host | None, *, connections: int, greet: Greet | None = None
) -> RedisPool:
    """A pool to this host; None = what the URL leads to. Does not connect."""
    address = server.address()
    named = _usual(connections) | _login(server, address) | {"db": address.database}
    if greet is not None:
        named["redis_connect_func"] = greet
    if address.tls:
        named |= {"connection_class": _TlsConnection, "tls": server.tls}
    if address.path:
        named |= {"connection_class": redis.asyncio.UnixDomainSocketConnection}
        return RedisPool(path=address.path, **named)
    named["socket_keepalive"] = True
    if host is None and address.kind is redisurl.ServerKind.SENTINEL:
        named["connection_class"] = _ToPrimaryTls if address.tls else _ToPrimary
        return _SentinelPool(Sentinels(server).primary, **named)
    name, port = host or address.hosts[0]
    return RedisPool(host=name, port=port, **named)


def _usual(connections: int) -> dict[str, Any]:
    return {
        "protocol": 2,
        "max_connections": connections,
        "timeout": _POOL_TIMEOUT_SECONDS,
        "driver_info": None,  # unused text at each connection
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "retry": redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
    }


def _login(server: Server, address: redisurl.Address) -> dict[str, Any]:
    username = server.username or address.username
    if server.password_file is not None:
        return {"credential_provider": FilePassword(username, server.password_file)}
    return {"username": username, "password": address.password}


class Sentinels:
    """Who the primary is, by the first Sentinel that knows.

    The one that answered last is asked first, and not one that let a question time out: it may
    hang, and a connection has less time to be made than several that hang would take.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._address = server.address()
        self._hosts = list(self._address.hosts)

    async def primary(self) -> Host:
        troubles = []
        for host in tuple(self._hosts):
            self._put(host, len(self._hosts))  # should this question be cut off
            try:
                found = await self._ask(host)
            except (redis.exceptions.RedisError, OSError) as error:
                troubles.append(f"{host[0]}:{host[1]}: {str(error) or type(error).__name__}")
            else:
                if found:
                    self._put(host, 0)
                    return found[0].decode(), int(found[1])
                troubles.append(f"{host[0]}:{host[1]} knows no {self._address.primary}")
        raise redis.exceptions.ConnectionError(
            "no Sentinel knows the primary " + "; ".join(troubles)
        )

    def _put(self, host: Host, place: int) -> None:
        self._hosts.remove(host)
        self._hosts.insert(place, host)

    async def _ask(self, host: Host) -> list[bytes] | None:
        named = _usual(1)
        if self._server.sentinel_password_file is not None:
            named["credential_provider"] = FilePassword(
                self._server.sentinel_username, self._server.sentinel_password_file
            )
        if self._address.tls:
            named |= {"connection_class": _TlsConnection, "tls": self._server.tls}
        client = redis.asyncio.Redis.from_pool(RedisPool(host=host[0], port=host[1], **named))
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS):
                found: list[bytes] | None = await client.execute_command(  # type: ignore[no-untyped-call]
                    "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.primary
                )
                return found
        finally:
            await client.aclose()  # type: ignore[attr-defined,unused-ignore]


async def greeting(connection: redis.asyncio.Connection) -> Greeting:
    """Log in and ask who is there.

    Raises a ConnectionError of the library for a server that cannot be used.
    """
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            await connection.on_connect()
            await connection.send_command("INFO", check_health=False)
            text = await connection.read_response()
    except TimeoutError:  # the library cleans up after errors of its own only
        raise redis.exceptions.TimeoutError("the server does not answer") from None
    except redis.exceptions.NoPermissionError as error:
        raise redis.exceptions.ConnectionError(
            f"{error}; this Redis user may not run INFO; let it +info",
            status_code=error.status_code,
        ) from error
    except redis.exceptions.ResponseError as error:
        # Before the first command of ours a server can only refuse us, for whatever reason it has.
        refusal = redis.exceptions.ConnectionError(*error.args, status_code=error.status_code)
        raise refusal from error
    said = _lines(text)
    problem = version_problem(said)
    if problem:
        raise redis.exceptions.ConnectionError(problem)
    return greeting_of(said, run_id=said.get("run_id", ""))


def greeting_of(said: Mapping[str, Any], *, run_id: str) -> Greeting:
    """What INFO replication says."""
    return Greeting(
        run_id=run_id,
        replication_id=str(said.get("master_replid", "")),
        is_replica=said.get("role") == "slave",
        replicas=int(said.get("connected_slaves", 0)),
        replica_hosts=tuple(_replica_hosts(said)),
    )


def _replica_hosts(said: Mapping[str, Any]) -> Iterator[Host]:
    """Of ``slave0:ip=10.0.0.7,port=6379,...``; the library reads some replies into dicts."""
    for number in itertools.count():
        entry = said.get(f"slave{number}")
        if entry is None:
            return
        if not isinstance(entry, Mapping):
            entry = dict(part.partition("=")[::2] for part in str(entry).split(","))
        with contextlib.suppress(KeyError, ValueError):
            yield str(entry["ip"]), int(entry["port"])


def version_problem(said: Mapping[str, Any]) -> str | None:
    """What is wrong with the version that INFO tells."""
    text = str(said.get("redis_version", "0"))
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version >= LEAST_VERSION:
        return None
    return f"the server is version {text}; at least 7.0 (or any Valkey) is needed"


def _lines(text: Any) -> dict[str, str]:  # noqa: ANN401 - of the library, bytes
    pairs = (line.partition(":") for line in bytes(text).decode(errors="replace").splitlines())
    return {name: value for name, separator, value in pairs if separator}


if TYPE_CHECKING:
    _Base = redis.asyncio.Connection
else:
    _Base = object


class _PacksInC(_Base):
    """Lets hiredis write commands; goes in front of any connection class.

    redis-py reads replies with hiredis, but on asyncio it writes commands value by value in Python
    (8.1.0), which for a script with four thousand arguments costs more than the script itself.
    """

    def pack_command(self, *args: Any) -> list[bytes]:  # noqa: ANN401 - the library's own
        first = args[0]
        if isinstance(first, str) and " " not in first:
            try:
                return [hiredis.pack_command(args)]
            except TypeError:
                pass
        return super().pack_command(*args)


def pack_in_c(pool: redis.asyncio.ConnectionPool) -> None:
    """Connections that this pool makes from now on write by hiredis."""
    own = pool.connection_class
    if not issubclass(own, _PacksInC):
        pool.connection_class = type(f"Packing{own.__name__}", (_PacksInC, own), {})
