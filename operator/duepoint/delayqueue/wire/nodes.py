"""One server: sends commands, returns replies in the same order, with errors in their places.

A Node keeps a few redis-py connections. On each it makes one write, then reads the replies. It
creates them with the library's pool (Sentinel's pool knows the primary), and does not return them
to it, as that takes 0.1 ms.

When a connection breaks, the Node closes the idle ones too: after a restart of the server they are
just as dead. The same goes for READONLY: another server is the primary now. A server that lets a
command time out gets only a PING until it answers; all other commands fail at once.

A Node also detects when its server changes: ``upheavals`` counts how often a new connection found
another process (``run_id``) or another history (``master_replid``) than the one before it. The last
writes may be lost then; the leader compares everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis
import redis.asyncio
import redis.exceptions
import structlog

from duepoint import faults
from duepoint.delayqueue.wire import connecting
from duepoint.faults import FaultPoint

log = structlog.get_logger(__name__)

#: A command without an answer for this long is given up, and its connection closed.
COMMAND_TIMEOUT_SECONDS = 5.0
#: How long a request waits while all connections are in use.
_PLACE_TIMEOUT_SECONDS = 15.0
#: An idle connection that does not answer for this long is dead.
_PROBE_TIMEOUT_SECONDS = 2.0
#: Interval between two PINGs to a silent server.
_ASK_SECONDS = 0.25
#: How long a write waits for a replica to have it, and how long a replica that was too slow for
#: that is not waited for again.
_CONFIRM_MS = 100
_CONFIRM_PAUSE_SECONDS = 5.0

Command = tuple[Any, ...]
_TIMEOUTS = (TimeoutError, redis.exceptions.TimeoutError)


class Unconfirmed(Exception):
    """In place of the reply to a write that was done, but less safely than requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """How safe writes must be before they are answered.

    Attributes:
        replicas: how many replicas must have them in memory, or with ``on_disk`` on disk.
        on_disk: whether the append-only file of the primary must have them.
        timeout_ms: how long that may take.
    """

    replicas: int = 0
    on_disk: bool = False
    timeout_ms: int = 1_000

    def command(self) -> Command:
        """Return the command that waits for it, on the connection of the writes."""
        if self.on_disk:
            return ("WAITAOF", 1, self.replicas, self.timeout_ms)
        return ("WAIT", self.replicas, self.timeout_ms)

    def is_reached(self, reply: Any) -> bool:  # noqa: ANN401 - numbers or an error
        """Whether the reply to that command shows that the writes are safe."""
        if self.on_disk:
            return isinstance(reply, list) and reply[0] >= 1 and reply[1] >= self.replicas
        return isinstance(reply, int) and reply >= self.replicas


#: As the last value of a command: replaced by the run id of the server that the command is sent to,
#: once the connection is chosen, so it cannot be that of another server. For some time after we met
#: that process as a primary, a space and the microseconds since then follow.
RUN_ID = object()
_NEWLY_MET_SECONDS = 5.0


class Node:
    """A server and the connections to it.

    Args:
        host: None = the server of the URL.
        connections: most connections in use or kept; further requests wait.
        on_upheaval: called when the server has changed.
    """

    def __init__(
        self,
        server: connecting.Server,
        host: connecting.Host | None,
        *,
        connections: int,
        on_upheaval: Callable[[], None],
        takes_replicas: bool = False,
    ) -> None:
        self._on_upheaval = on_upheaval
        self._takes_replicas = takes_replicas
        self._met: Mapping[str, Any] = {}  # the fields of INFO
        self._met_at = 0.0
        self._run_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._confirm_from = 0.0
        self._most = connections
        self._places = asyncio.Semaphore(connections)
        self.idle: list[Any] = []
        self._asking: asyncio.Task[None] | None = None
        self._is_closed = False
        self.upheavals = 0
        self.replicas = 0
        self.unconfirmed = 0
        self.pool = connecting.make_pool(server, host, self._greet)
        self.client: redis.asyncio.Redis = redis.asyncio.Redis.from_pool(self.pool)

    async def exchange(
        self,
        commands: Sequence[Command],
        *,
        confirmed: bool = False,
        safety: Safety | None = None,
    ) -> list[Any]:
        """Return the replies in order, with errors in their places; a cancellation is raised.

        Args:
            confirmed: for writes that arm: wait a moment until a replica, if any, has them, and
                send nothing to a server that took over since the call.
            safety: writes that are less safe than this have ``Unconfirmed`` for a reply.
        """
        now = asyncio.get_running_loop().time()
        seconds = COMMAND_TIMEOUT_SECONDS
        sent = list(commands)
        waits = confirmed and self.replicas > 0 and now >= self._confirm_from
        if safety is not None:
            sent.append(safety.command())
            seconds += safety.timeout_ms / 1_000
        elif waits:
            sent.append(("WAIT", 1, _CONFIRM_MS))
        try:
            await faults.reach(FaultPoint.BEFORE_COMMANDS)
            replies = await self._send(sent, seconds, arms=confirmed or safety is not None)
            await faults.reach(FaultPoint.AFTER_REPLIES)
        except (redis.exceptions.RedisError, OSError) as error:  # TimeoutError is an OSError
            await self.drop_idle()
            if isinstance(error, _TIMEOUTS):
                self._probe_until_it_answers()
            return [error] * len(commands)
        if any(isinstance(reply, redis.exceptions.ReadOnlyError) for reply in replies):
            await self.drop_idle()
        if safety is not None:
            return as_safe_as(safety, replies.pop(), replies)
        if waits:
            self._note_confirmation(replies.pop())
        return replies

    async def keepalive(self) -> None:
        """PING each idle connection, and close those that have died silently."""
        asked, self.idle = self.idle, []
        talks = (self._talk(each, [("PING",)], _PROBE_TIMEOUT_SECONDS) for each in asked)
        await asyncio.gather(*talks, return_exceptions=True)

    def hosts(self) -> tuple[connecting.Host, ...]:
        """Return the hosts of the primary, if Sentinel has named it, and of its replicas."""
        primary = getattr(self.pool, "master_address", None)
        known = () if primary is None else (primary,)
        return (*known, *connecting.replica_hosts(self._met))

    async def refresh(self) -> None:
        """Read the server's identity and replicas again; errors show in the next command."""
        (said,) = await self.exchange([("INFO", "replication")])
        if isinstance(said, Exception):
            return
        if _is_replica(said) and not self._takes_replicas:
            await self.drop_idle()
        else:
            await self._note({**self._met, **said})

    async def close(self) -> None:
        """Close idle connections and end tasks; requests in flight end by themselves."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        await self.drop_idle()
        await self.pool.aclose()

    async def _send(
        self, commands: Sequence[Command], seconds: float, *, arms: bool = False, asks: bool = False
    ) -> list[Any]:
        """Send commands and return the replies; a server that is silent for this long is away.

        Waiting for a free connection does not show that the server is away, so the limit begins
        after that wait.
        """
        upheavals = self.upheavals if arms else None
        await self._take_place()
        try:
            if self._asking is not None and not asks:
                raise redis.exceptions.TimeoutError("the server has not answered for a while")
            connection: Any = self.idle.pop() if self.idle else self.pool.make_connection()  # type: ignore[no-untyped-call]
            return await self._talk(connection, commands, seconds, upheavals)
        finally:
            self._places.release()

    async def _talk(
        self,
        connection: Any,  # noqa: ANN401 - of the library
        commands: Sequence[Command],
        seconds: float,
        upheavals: int | None = None,
    ) -> list[Any]:
        """Write once, then read all replies; close a connection that may have unread ones."""
        try:
            await self._connect(connection, upheavals)
            run_id = self._run_id_of(connection)
            packed = [
                hiredis.pack_command((*each[:-1], run_id) if each[-1] is RUN_ID else each)
                for each in commands
            ]
            async with _answer_within(seconds):
                await connection.send_packed_command(packed, check_health=False)
                await faults.reach(FaultPoint.AFTER_COMMANDS_SENT)
                replies = [await self._reply(connection, command[0]) for command in commands]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        if self._is_closed or len(self.idle) == self._most:
            await connection.disconnect(nowait=True)
        else:
            self.idle.append(connection)
        return replies

    async def _connect(self, connection: Any, upheavals: int | None) -> None:  # noqa: ANN401
        if not await _is_good(connection):
            await connection.disconnect(nowait=True)
            await connection.connect()
        if upheavals not in (None, self.upheavals):
            raise connecting.ServerChanged(connecting.ASK_AGAIN)

    async def _take_place(self) -> None:
        try:
            async with asyncio.timeout(_PLACE_TIMEOUT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise redis.exceptions.ConnectionError("all connections are in use") from None

    async def _reply(self, connection: Any, name: str) -> Any:  # noqa: ANN401 - of the library
        try:
            if name == "EVALSHA":
                return await connection.read_response()
            return await self.client.parse_response(connection, name)
        except redis.exceptions.ResponseError as error:
            return error

    async def drop_idle(self) -> None:
        """Close the connections that no request uses."""
        idle, self.idle = self.idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    def _probe_until_it_answers(self) -> None:
        if self._asking is None and not self._is_closed:
            self._asking = asyncio.create_task(self._probe(), name="silent server of the queue")

    async def _probe(self) -> None:
        try:
            while True:
                with contextlib.suppress(*_TIMEOUTS):
                    await self._send([("PING",)], COMMAND_TIMEOUT_SECONDS, asks=True)
                    return
                await asyncio.sleep(_ASK_SECONDS)
        except (redis.exceptions.RedisError, OSError):
            pass  # it fails at once
        finally:
            self._asking = None

    def _run_id_of(self, connection: Any) -> str:  # noqa: ANN401 - of the library
        run_id = self._run_ids.get(connection, "")
        met = self._met
        if not run_id or met.get("run_id") != run_id or _is_replica(met):
            return run_id
        seconds = asyncio.get_running_loop().time() - self._met_at
        return f"{run_id} {seconds * 1e6:.0f}" if seconds < _NEWLY_MET_SECONDS else run_id

    async def _greet(self, connection: redis.asyncio.Connection) -> None:
        self._run_ids.pop(connection, None)
        said = await connecting.greeting(self.client, connection)
        await faults.reach(FaultPoint.AFTER_QUEUE_GREETING)
        self._run_ids[connection] = str(said.get("run_id", ""))
        if _is_replica(said) and not self._takes_replicas:
            raise redis.exceptions.ConnectionError(
                "READONLY the server is a replica, and only the primary can be used"
            )
        await self._note(said)

    async def _note(self, said: Mapping[str, Any]) -> None:
        met, self._met = self._met, said
        self.replicas = int(said.get("connected_slaves", 0))
        is_other = any(met.get(name) != said.get(name) for name in ("run_id", "master_replid"))
        if is_other or _is_replica(met):  # it may have become a primary just now
            self._met_at = asyncio.get_running_loop().time()
        if met and is_other:
            log.warning("the server was replaced; the last writes may be lost")
            self.upheavals += 1
            self._on_upheaval()
            await self.drop_idle()

    def _note_confirmation(self, replicas: Any) -> None:  # noqa: ANN401 - a number or an error
        if isinstance(replicas, int) and replicas > 0:
            return
        self.unconfirmed += 1
        self._confirm_from = asyncio.get_running_loop().time() + _CONFIRM_PAUSE_SECONDS
        log.warning("no replica has confirmed a write", answer=str(replicas))


def as_safe_as(safety: Safety, reached: object, replies: Sequence[Any]) -> list[Any]:
    """Return the replies; ``Unconfirmed`` for writes that have not reached this safety."""
    if safety.is_reached(reached):
        return list(replies)
    where = "on disk" if safety.on_disk else "in memory"
    unsafe = f"{safety.replicas} replicas {where} were requested; the server answers {reached}"
    return [each if isinstance(each, Exception) else Unconfirmed(unsafe) for each in replies]


def _is_replica(said: Mapping[str, Any]) -> bool:
    return said.get("role") == "slave"


async def _is_good(connection: Any) -> bool:  # noqa: ANN401 - of the library
    """Whether the connection is open on both sides and has no unread bytes."""
    try:
        return connection.is_connected and not await connection.can_read()
    except (redis.exceptions.RedisError, OSError):
        return False


class ServerChanges:
    """Counts changes of the servers, and calls back.

    Attributes:
        generation: grows whenever slots may have moved to other servers.
        upheavals: how often a server was found replaced by another one: writes may be lost.
        on_upheaval: called at each upheaval, before anything is sent to the other server.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.upheavals = 0
        self.on_upheaval: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    def note_change(self) -> None:
        self.generation += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seen: int) -> int:
        """Wait until the generation is not ``seen``; return it."""
        while self.generation == seen:
            await self._changed.wait()
        return self.generation

    def note_upheaval(self) -> None:
        self.upheavals += 1
        for report in self.on_upheaval:
            report()


#: A timer that comes later than this was kept waiting by other work.
_LATE_SECONDS = 0.02


@contextlib.asynccontextmanager
async def _answer_within(seconds: float) -> AsyncIterator[None]:
    """Like ``asyncio.timeout``, but twice as long if this process itself is late.

    The event loop runs an overdue timer in the same turn in which it learns of arrived bytes, and
    before it reads them. So in a process that was stopped, or that is short of CPU, a plain timeout
    discards answers that have arrived already, treats a healthy server as away, and causes even
    more work.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    def expire() -> None:
        now = loop.time()
        limit.reschedule(now + seconds if now - end > _LATE_SECONDS else now)

    async with asyncio.timeout(None) as limit:
        timer = loop.call_at(end, expire)
        try:
            yield
        finally:
            timer.cancel()
