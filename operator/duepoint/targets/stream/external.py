"""Streams in another Redis than Duepoint's own: the one that a Secret of the namespace leads to.

Connections are kept for what stands in the Secret and shared by its Schedules, a few at a time;
another password is another pool. At least once: after a lost reply the entry is appended again with
the same ``id``. A server that belongs to a cluster may say once where the key lives (MOVED); the
guard judges that address like any other. What a server that is not ours says or fails to say ends
within the attempt's time and in bounded memory.

The server may be anything. hiredis parses RESP2, which has no bound of its own, so the bytes of a
reply are counted before they are parsed: a reply has at most 4 KiB, and no other type than XADD,
AUTH and SELECT answer with. Anything else ends the connection (``RedisConnection``).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import hiredis

from duepoint import redisurl
from duepoint.net import dialling
from duepoint.runs import outcome
from duepoint.schedules.conditions import Reason
from duepoint.targets import endpoints, target
from duepoint.targets.secretaccess import servers

KEYS = ("url", "username", "password")
PATH = "spec.stream.connectionSecretRef"

#: Connections to one server at a time; what more attempts ask waits within its time.
_MOST_CONNECTIONS = 8
_MOST_SERVERS = 256
#: The password or the rights may have been changed: the Secret is read again.
_LOGIN = frozenset({"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password"})
#: "Not now", by the first word of the answer.
_WAITS = frozenset(
    {
        *("OOM", "BUSY", "LOADING", "READONLY", "MISCONF", "NOREPLICAS", "UNKILLABLE"),
        *("TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "ASK"),
    }
)
#: The server's words never stand in a status: it may be one that the author could not ask.
_WORDS = {
    "WRONGTYPE": "WRONGTYPE, the key holds something else than a stream",
    "NOAUTH": "NOAUTH, it wants a login",
    "WRONGPASS": "WRONGPASS, user name or password is wrong",
    "NOPERM": "NOPERM, the user may not XADD to this key",
    "OOM": "OOM, its memory is full",
    "READONLY": "READONLY, it is a replica",
    "LOADING": "LOADING, it is starting",
    "BUSY": "BUSY, it runs a script",
    "MISCONF": "MISCONF, it cannot write to its disk",
    "NOREPLICAS": "NOREPLICAS, it has too few replicas",
    "CLUSTERDOWN": "CLUSTERDOWN, its cluster is down",
    "MASTERDOWN": "MASTERDOWN, its primary is away",
    "TRYAGAIN": "TRYAGAIN, the slot is being moved",
    "MOVED": "MOVED, the slot is on another server",
    "ASK": "ASK, the slot is being moved",
    "ERR": "ERR",
}
#: Of one reply.
_MOST_BYTES = 4096
#: Simple strings, errors, integers and strings. An array would be allocated by its announced size.
_TYPES = b"+-:$"

Part = bytes | str | int
#: What XADD answers.
_ENTRY = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}")
_MOVED = re.compile(r"MOVED [0-9]{1,5} (\S{0,255}):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One XADD; ``fields`` are name, value, name, value ..."""

    key: str
    max_length: int | None
    fields: tuple[bytes | str, ...]

    def command(self) -> tuple[Part, ...]:
        trim = () if self.max_length is None else ("MAXLEN", "~", self.max_length)
        return ("XADD", self.key, *trim, "*", *self.fields)


@dataclass(slots=True)
class _Pool:
    """Open connections to one address with one login."""

    connection: servers.SecretConnection
    address: redisurl.Address
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_CONNECTIONS))
    idle: list[RedisConnection] = field(default_factory=list)

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self.connection.tls if self.address.tls else None

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


class ExternalStreams:
    """Appends to streams of other servers."""

    def __init__(
        self,
        reader: servers.ConnectionReader,
        dialler: dialling.Dialler,
        services: endpoints.Services,
    ) -> None:
        self._reader = reader
        self._dialler = dialler
        self._services = services
        self._pools: OrderedDict[tuple[bytes, tuple[tuple[str, int], ...]], _Pool] = OrderedDict()

    async def check(self, namespace: str, secret: str) -> target.Trouble | None:
        """Whether the connection can be read and is one; connects to no server."""
        found = await self._connection(namespace, secret)
        if not isinstance(found, target.Trouble):
            return None
        self._reader.forget(namespace)  # the next look is to see whether it was mended
        return found

    async def append(self, namespace: str, secret: str, wanted: Append) -> outcome.Outcome | str:
        """The entry's id, or what came of it instead; ends when the caller's time does."""
        found = await self._connection(namespace, secret)
        if isinstance(found, target.Trouble):
            return outcome.Retry(reason=found.reason, message=found.message, started=False)
        connection, address = found
        try:
            return await self._append(namespace, connection, address, wanted)
        except ServerError as error:
            return self._refused(namespace, error)
        except (OSError, Garbled) as error:
            return _unreached(connection, address, error)

    async def close(self) -> None:
        """Close what is open."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    # -- steps -------------------------------------------------------------------------------------

    async def _connection(
        self, namespace: str, secret: str
    ) -> tuple[servers.SecretConnection, redisurl.Address] | target.Trouble:
        found = await self._reader.read(PATH, namespace, secret, KEYS, "url")
        if isinstance(found, target.Trouble):
            return found
        try:
            address = redisurl.parse(found.values["url"])
        except ValueError as error:
            return servers.unusable(found, "url", str(error))
        if address.kind is not redisurl.ServerKind.SERVER or not address.hosts:
            return servers.unusable(
                found, "url", "leads to no single server; write redis://host:6379/0 or rediss://"
            )
        if (withheld := found.withheld(address.hosts)) is not None:
            return withheld
        secured = await self._reader.secured(found) if address.tls else found
        if isinstance(secured, target.Trouble):
            return secured
        unspeakable = (*found.unspeakable, *filter(None, (address.username, address.password)))
        return dataclasses.replace(secured, unspeakable=unspeakable), address

    async def _append(
        self,
        namespace: str,
        connection: servers.SecretConnection,
        address: redisurl.Address,
        wanted: Append,
    ) -> str:
        try:
            return await self._ask(namespace, connection, address, wanted)
        except ServerError as error:
            moved = _MOVED.fullmatch(str(error))
            if moved is None:
                raise
        host = moved[1].strip("[]") or address.hosts[0][0]
        servers.require_server(host, int(moved[2]))
        if (withheld := connection.withheld([(host, int(moved[2]))])) is not None:
            raise servers.ServerRefused(withheld)
        there = redisurl.Address(
            hosts=((host, int(moved[2])),),
            tls=address.tls,
            username=address.username,
            password=address.password,
        )
        return await self._ask(namespace, connection, there, wanted)

    async def _ask(
        self,
        namespace: str,
        connection: servers.SecretConnection,
        address: redisurl.Address,
        wanted: Append,
    ) -> str:
        pool = self._pool(connection, address)
        async with pool.room, self._borrowed(namespace, pool) as opened:
            answer = await opened.execute(*wanted.command())
        if not _ENTRY.fullmatch(answer):
            raise Garbled("what it answered is no id of an entry")
        return answer.decode()

    def _pool(self, connection: servers.SecretConnection, address: redisurl.Address) -> _Pool:
        key = connection.digest, address.hosts
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(connection=connection, address=address)
        self._pools.move_to_end(key)
        while len(self._pools) > _MOST_SERVERS:
            self._pools.popitem(last=False)[1].close()
        return pool

    @contextlib.asynccontextmanager
    async def _borrowed(self, namespace: str, pool: _Pool) -> AsyncIterator[RedisConnection]:
        """An open connection; kept if the answer was one, closed if it was cut off or garbled."""
        while pool.idle and not pool.idle[-1].is_open:
            pool.idle.pop().close()
        opened = pool.idle.pop() if pool.idle else await self._opened(namespace, pool)
        try:
            yield opened
        except ServerError:
            pool.idle.append(opened)
            raise
        except BaseException:
            opened.close()
            raise
        else:
            pool.idle.append(opened)

    async def _opened(self, namespace: str, pool: _Pool) -> RedisConnection:
        ((host, port),) = pool.address.hosts
        dialler = servers.ServerDialler(self._dialler, self._services, namespace)
        opened = await RedisConnection.open(dialler, host, port, pool.tls)
        try:
            await _log_in(opened, pool)
        except BaseException:
            opened.close()
            raise
        return opened

    def _refused(self, namespace: str, error: ServerError) -> outcome.Outcome:
        message = f"the other Redis refuses it: {_WORDS.get(error.code, 'an error')}"
        if error.code == "WRONGTYPE":
            return outcome.Rejected(reason=Reason.WRONG_TYPE, message=message)
        if error.code in _LOGIN or "AUTH" in str(error):
            self._reader.forget(namespace)
            message += "; look at username and password in the Secret of connectionSecretRef"
            return outcome.Retry(reason=Reason.REJECTED, message=message)
        if error.code in _WAITS:
            return outcome.Retry(reason=Reason.REJECTED, message=message)
        return outcome.Rejected(reason=Reason.REJECTED, message=message)


async def _log_in(opened: RedisConnection, pool: _Pool) -> None:
    values, address = pool.connection.values, pool.address
    username = values.get("username") or address.username
    password = values.get("password") or address.password
    if password is not None:
        await opened.execute("AUTH", *([username] if username else []), password)
    if address.database:
        await opened.execute("SELECT", address.database)


def _unreached(
    connection: servers.SecretConnection, address: redisurl.Address, error: Exception
) -> outcome.Outcome:
    host, port = address.hosts[0]
    if isinstance(error, dialling.Blocked):
        message = f"{host} port {port} is not allowed: {error}"
        return outcome.Rejected(reason=Reason.BLOCKED_ADDRESS, message=connection.redacted(message))
    if isinstance(error, servers.ServerRefused):
        text = connection.redacted(error.trouble.message)
        if error.trouble.final:
            return outcome.Rejected(reason=error.trouble.reason, message=text)
        return outcome.Retry(reason=error.trouble.reason, message=text)
    what = str(error) or type(error).__name__
    message = f"no entry could be added at {host} port {port}: {what}"
    return outcome.Retry(reason=Reason.NETWORK, message=connection.redacted(message))


# -- the connection --------------------------------------------------------------------------------


class ServerError(Exception):
    """The server said no.

    Attributes:
        code: the first word, such as ``WRONGTYPE``.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class Garbled(Exception):
    """The server speaks no RESP, or too much of it."""


class RedisConnection:
    """One connection, for one command at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls, dialler: servers.ServerDialler, host: str, port: int, tls: ssl.SSLContext | None
    ) -> RedisConnection:
        """Connected; raises OSError, ssl.SSLError included."""
        made = await dialler.connect(host, port, tls=tls is not None)
        try:
            reader, writer = await asyncio.open_connection(
                sock=made,
                ssl=tls,
                server_hostname=host if tls is not None else None,
                limit=_MOST_BYTES,
            )
        except BaseException:
            made.close()
            raise
        return cls(reader, writer)

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as is known."""
        return not self._writer.is_closing() and not self._reader.at_eof()

    async def execute(self, *parts: Part) -> bytes:
        """The reply to one command; raises ServerError, Garbled and OSError."""
        self._writer.write(hiredis.pack_command(parts))  # type: ignore[arg-type]  # any length
        await self._writer.drain()
        reply = await self._reply()
        if isinstance(reply, hiredis.ReplyError):
            raise ServerError(str(reply))
        return reply if isinstance(reply, bytes) else str("" if reply is None else reply).encode()

    def close(self) -> None:
        """At once, without waiting for what is on its way."""
        self._writer.transport.abort()

    async def _reply(self) -> Any:  # noqa: ANN401 - bytes, int, None or a ReplyError
        """One reply, with nothing behind it."""
        received = bytearray()
        while data := await self._reader.read(_MOST_BYTES):
            received += data
            if len(received) > _MOST_BYTES:
                raise Garbled(f"it answered with more than {_MOST_BYTES} bytes")
            if b"\r\n" in received and (reply := _parsed(bytes(received))) is not False:
                return reply
        if received:
            raise Garbled("the connection was closed within an answer")
        raise ConnectionResetError("the connection was closed")


def _parsed(received: bytes) -> Any:  # noqa: ANN401 - False where the reply is not complete
    """Of few bytes, so that parsing them again with the next ones costs nothing."""
    if received[0] not in _TYPES:
        raise Garbled(f"it answered {len(received)} bytes that are no Redis reply")
    announced = received[1 : received.index(b"\r\n")]
    if received[:1] == b"$" and announced.isdigit() and int(announced[:9]) > _MOST_BYTES:
        raise Garbled("it answered with a longer text than any answer to XADD is")
    parser = hiredis.Reader(errors="replace")
    parser.feed(received)
    try:
        reply = parser.gets()
    except hiredis.ProtocolError:
        raise Garbled("what it answered is no Redis reply") from None
    if reply is not False and parser.has_data():
        raise Garbled("it answered with more than one reply")
    return reply
