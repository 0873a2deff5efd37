"""Streams in a Redis other than Duepoint's own, which a Secret of the namespace describes.

Each Secret content has a small connection pool, which its Schedules share; a new password means a
new pool. Delivery is at least once: after a lost reply the entry is appended again with the same
``id``. A server of a cluster may redirect once (MOVED), and the egress guard judges that address
like any other. Whatever a foreign server does, an attempt ends in time and in bounded memory.

The server may be anything. RESP2, which hiredis parses, has no bound of its own. So the bytes of a
reply are counted before they are parsed: a reply has at most 4 KiB, and only types that XADD,
AUTH and SELECT answer with. Anything else ends the connection (``RedisConnection``).
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
import ssl
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import hiredis

from duepoint import redisurl, shares
from duepoint.net import dialling
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from duepoint.targets.secretaccess import references, servers

KEYS = ("url", "username", "password")
PATH = "spec.stream.connectionSecretRef"

#: Most connections to one server; further attempts wait within their time.
_MOST_CONNECTIONS = 8
_MOST_SERVERS = 256
#: Errors that mean that password or rights may have changed: the Secret is read again.
_LOGIN = frozenset({"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password"})
#: Our words for errors: a status never shows text from a server that its author could not call.
_WORDS = {
    "WRONGTYPE": "WRONGTYPE, the key holds something other than a stream",
    "NOAUTH": "NOAUTH, it wants a login",
    "WRONGPASS": "WRONGPASS, user name or password is wrong",
    "DENIED": "DENIED, it is in protected mode and has no password",
    "NOPERM": "NOPERM, the user may not XADD to this key",
    "OOM": "OOM, its memory is full",
    "READONLY": "READONLY, it is a replica",
    "LOADING": "LOADING, it is starting",
    "BUSY": "BUSY, it runs a script",
    "MISCONF": "MISCONF, it cannot write to its disk",
    "NOREPLICAS": "NOREPLICAS, it has too few replicas",
    "CLUSTERDOWN": "CLUSTERDOWN, its cluster is down",
    "MASTERDOWN": "MASTERDOWN, its primary is down",
    "TRYAGAIN": "TRYAGAIN, the slot is being moved",
    "MOVED": "MOVED, the slot is on another server",
    "ASK": "ASK, the slot is being moved",
    "ERR": "ERR",
}
#: Largest reply.
_MOST_BYTES = 4096
#: Simple strings, errors, integers, bulk strings. hiredis allocates an array by its announced size.
_TYPES = b"+-:$"

Part = bytes | str | int
#: An entry's id, as XADD answers.
_ENTRY = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}")
_MOVED = re.compile(r"MOVED [0-9]{1,5} (\S{0,255}):([0-9]{1,5})")


def xadd(key: str, max_length: int | None, fields: dict[str, bytes | str]) -> tuple[Part, ...]:
    """Return the command that appends one entry."""
    trim = () if max_length is None else ("MAXLEN", "~", max_length)
    return ("XADD", key, *trim, "*", *itertools.chain.from_iterable(fields.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """One address with one login."""

    connection: servers.SecretConnection
    address: redisurl.Address

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self.connection.tls if self.address.tls else None


@dataclass(slots=True)
class _Pool:
    """Open connections to a server.

    Attributes:
        users: attempts that wait for a connection or have one.
    """

    namespace: str
    users: int = 0
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_CONNECTIONS))
    idle: list[RedisConnection] = field(default_factory=list)

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


class ExternalStreams:
    """Appends entries to streams of other servers."""

    def __init__(self, reader: servers.ConnectionReader, dialler: servers.ServerDialler) -> None:
        self._reader = reader
        self._dialler = dialler
        self._pools: OrderedDict[tuple[bytes, tuple[tuple[str, int], ...]], _Pool] = OrderedDict()

    async def check(self, namespace: str, secret: str) -> target.Trouble | None:
        """Return the trouble with the Secret's connection; connects to no server."""
        try:
            await self._server(namespace, secret)
        except references.Unread as unread:
            self._reader.forget(namespace)  # so that the next check sees a correction
            return unread.trouble
        return None

    async def append(
        self, namespace: str, secret: str, command: tuple[Part, ...]
    ) -> outcome.Outcome | str:
        """Append an entry; return its id, or the outcome. The caller sets the time limit."""
        try:
            server = await self._server(namespace, secret)
        except references.Unread as unread:
            trouble = unread.trouble
            return outcome.Retry(reason=trouble.reason, message=trouble.message, started=False)
        try:
            try:
                return await self._send(namespace, server, command)
            except ServerError as error:
                if (moved := _MOVED.fullmatch(str(error))) is None:
                    raise
            named = _moved_to(server, moved[1], int(moved[2]))
            try:
                return await self._send(namespace, named, command)
            except OSError as error:
                raise servers.unnamed(error) from None
        except ServerError as error:
            return self._refused(namespace, error)
        except (OSError, Garbled) as error:
            return _unreached(server, error)

    async def close(self) -> None:
        """Close all idle connections."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    # -- steps -------------------------------------------------------------------------------------

    async def _server(self, namespace: str, secret: str) -> _Server:
        """Read the server's address and login; raises Unread."""
        found = await self._reader.read(PATH, namespace, secret, KEYS, "url")
        try:
            address = redisurl.parse(found.values["url"])
        except ValueError as error:
            raise found.to.unusable("url", found.redacted(str(error))) from None
        if address.server_name or address.sentinel_username:
            raise found.to.unusable(
                "url", "has a parameter that only Duepoint's own Redis may have"
            )
        if address.kind is not redisurl.ServerKind.SERVER or not address.hosts:
            what = "does not name a single server; write redis://host:6379/0 or rediss://"
            raise found.to.unusable("url", what)
        found.require_consent(address.hosts)
        secured = await self._reader.secured(found) if address.tls else found
        unspeakable = (*found.unspeakable, *filter(None, (address.username, address.password)))
        connection = dataclasses.replace(secured, unspeakable=unspeakable)
        return _Server(connection=connection, address=address)

    async def _send(self, namespace: str, server: _Server, command: tuple[Part, ...]) -> str:
        """Run the command and return the entry's id; keep a connection only after a reply."""
        key = server.connection.digest, server.address.hosts
        pool = self._pools.setdefault(key, _Pool(namespace))
        self._pools.move_to_end(key)
        pool.users += 1
        self._keep_bound()
        try:
            return await self._send_over(pool, server, command)
        finally:
            pool.users -= 1
            self._keep_bound()

    def _keep_bound(self) -> None:
        """Evict idle pools above the bound; the worker's places bound the busy ones."""
        while len(self._pools) > _MOST_SERVERS:
            gone = shares.first_to_go(
                self._pools, owner=lambda pool: pool.namespace, is_idle=lambda pool: not pool.users
            )
            if gone is None:
                return
            self._pools.pop(gone).close()

    async def _send_over(self, pool: _Pool, server: _Server, command: tuple[Part, ...]) -> str:
        async with pool.room:
            while pool.idle and not pool.idle[-1].is_open:
                pool.idle.pop().close()
            opened = pool.idle.pop() if pool.idle else await self._opened(pool.namespace, server)
            try:
                answer = await opened.execute(*command)
            except ServerError:
                pool.idle.append(opened)
                raise
            except BaseException:
                opened.close()
                raise
            pool.idle.append(opened)
        if not _ENTRY.fullmatch(answer):
            raise Garbled("its answer is not the id of an entry")
        return answer.decode()

    async def _opened(self, namespace: str, server: _Server) -> RedisConnection:
        values, address = server.connection.values, server.address
        ((host, port),) = address.hosts
        opened = await RedisConnection.open(self._dialler, namespace, host, port, server.tls)
        username = values.get("username") or address.username
        password = values.get("password") or address.password
        try:
            if password is not None:
                await opened.execute("AUTH", *([username] if username else []), password)
            if address.database:
                await opened.execute("SELECT", address.database)
        except BaseException:
            opened.close()
            raise
        return opened

    def _refused(self, namespace: str, error: ServerError) -> outcome.Outcome:
        message = f"the other Redis refuses it: {_WORDS.get(error.code, 'an error')}"
        if error.code == "WRONGTYPE":
            return outcome.Rejected(reason=Reason.TARGET_UNAVAILABLE, message=message)
        if error.code in _LOGIN or "AUTH" in str(error):
            self._reader.forget(namespace)
            message += "; check username and password in the Secret of connectionSecretRef"
            return outcome.Retry(reason=Reason.REJECTED, message=message)
        # Any other code may pass, and some kinds of servers have codes of their own: retry.
        kind = outcome.Rejected if error.code == "ERR" else outcome.Retry
        return kind(reason=Reason.REJECTED, message=message)


def _moved_to(server: _Server, host: str, port: int) -> _Server:
    """Return the server that another one of its cluster names; raises OSError if not allowed."""
    host = host.strip("[]") or server.address.hosts[0][0]
    server.connection.require_server(host, port)
    address = redisurl.Address(
        hosts=((host, port),),
        tls=server.address.tls,
        username=server.address.username,
        password=server.address.password,
    )
    return dataclasses.replace(server, address=address)


def _unreached(server: _Server, error: Exception) -> outcome.Outcome:
    host, port = server.address.hosts[0]
    if isinstance(error, dialling.Blocked):
        message = f"{host} port {port} is not allowed: {error}"
        return outcome.Rejected(reason=Reason.BLOCKED_ADDRESS, message=message)
    if isinstance(error, servers.ServerRefused):
        kind = outcome.Rejected if error.trouble.final else outcome.Retry
        return kind(reason=error.trouble.reason, message=error.trouble.message)
    what = server.connection.redacted(str(error) or type(error).__name__)
    message = f"no entry could be added at {host} port {port}: {what}"
    return outcome.Retry(reason=Reason.NETWORK, message=message)


# -- the connection --------------------------------------------------------------------------------


class ServerError(Exception):
    """The server answered with an error.

    Attributes:
        code: the first word, such as ``WRONGTYPE``.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class Garbled(Exception):
    """The reply is not RESP, or too long."""


class RedisConnection:
    """One connection, for one command at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls,
        dialler: servers.ServerDialler,
        namespace: str,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
    ) -> RedisConnection:
        """Connect to a server; raises OSError, ssl.SSLError included."""
        made = await dialler.connect(namespace, host, port, tls=tls is not None)
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
        """Whether neither side has closed the connection, as far as we know."""
        return not self._writer.is_closing() and not self._reader.at_eof()

    async def execute(self, *parts: Part) -> bytes:
        """Send one command and return its reply; raises ServerError, Garbled and OSError."""
        self._writer.write(hiredis.pack_command(parts))  # type: ignore[arg-type]  # any length
        await self._writer.drain()
        reply = await self._reply()
        if isinstance(reply, hiredis.ReplyError):
            raise ServerError(str(reply))
        return reply if isinstance(reply, bytes) else str("" if reply is None else reply).encode()

    def close(self) -> None:
        """Close at once, without waiting for data in flight."""
        self._writer.transport.abort()

    async def _reply(self) -> Any:  # noqa: ANN401 - bytes, int, None or a ReplyError
        """Read one reply; raises Garbled if anything follows it."""
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


def _parsed(received: bytes) -> Any:  # noqa: ANN401 - False if the reply is not complete
    """Parse a reply, from the start each time: it is short enough for that."""
    if received[0] not in _TYPES:
        raise Garbled(f"its answer of {len(received)} bytes is not a Redis reply")
    announced = received[1 : received.index(b"\r\n")]
    if received[:1] == b"$" and announced.isdigit() and int(announced[:9]) > _MOST_BYTES:
        raise Garbled("it answered with a text longer than any answer to XADD")
    parser = hiredis.Reader(errors="replace")
    parser.feed(received)
    try:
        reply = parser.gets()
    except hiredis.ProtocolError:
        raise Garbled("its answer is not a Redis reply") from None
    if reply is not False and parser.has_data():
        raise Garbled("it answered with more than one reply")
    return reply
