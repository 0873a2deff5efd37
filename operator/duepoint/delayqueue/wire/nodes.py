"""One server: commands in, replies in the same order out, an error in the place of its reply.

A Node holds a few connections of redis-py's and exchanges on each: one write, then the replies in
order, so that a read behind a script is a read after it. It makes them by the library's pool (of
which Sentinel's knows the primary), and does not give them back: a hand-over there takes 0.1 ms.

A connection that broke takes the idle ones along: after a restart of the server they are just as
dead. So does READONLY: another server is the primary now. A server that lets a command time out
gets nothing but a PING until it answers; everything else fails at once.

A Node also knows whether it is the server that it was: ``upheavals`` counts how often a new
connection found another process (``run_id``) or another history (``master_replid``) than the one
before it. What was written last may be lost then; the leader compares everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
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

#: A command without an answer for so long is given up, and its connection with it.
COMMAND_TIMEOUT_SECONDS = 5.0
#: How long a request waits while all connections are in use.
_PLACE_TIMEOUT_SECONDS = 15.0
#: An idle connection that does not answer for so long is dead.
_PROBE_TIMEOUT_SECONDS = 2.0
#: From one question to a silent server to the next.
_ASK_SECONDS = 0.25
#: How long a write waits for a replica to have it, and how long a replica that was too slow for
#: that is not waited for again.
_CONFIRM_MS = 100
_CONFIRM_PAUSE_SECONDS = 5.0

Command = tuple[Any, ...]
_TIMEOUTS = (TimeoutError, redis.exceptions.TimeoutError)


class Unconfirmed(Exception):
    """In place of the reply to a write that was done, and is not as safe as was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """How safe writes have to be before they are answered.

    Attributes:
        replicas: as many have them in memory, or with ``on_disk`` on disk.
        on_disk: the append-only file of the primary has them.
        timeout_ms: how long that may take.
    """

    replicas: int = 0
    on_disk: bool = False
    timeout_ms: int = 1_000

    def command(self) -> Command:
        """Waits, on the connection of the writes."""
        if self.on_disk:
            return ("WAITAOF", 1, self.replicas, self.timeout_ms)
        return ("WAIT", self.replicas, self.timeout_ms)

    def is_reached(self, reply: Any) -> bool:  # noqa: ANN401 - numbers or an error
        """Whether the reply to the command says so."""
        if self.on_disk:
            return isinstance(reply, list) and reply[0] >= 1 and reply[1] >= self.replicas
        return isinstance(reply, int) and reply >= self.replicas


#: As the last value of a command: the run id of the server that the command is sent to. Put in with
#: the connection in hand, so it cannot be that of another server. For so long after we met that
#: process as a primary follow, after a space, the microseconds since then.
RUN_ID = object()
_NEWLY_MET_SECONDS = 5.0


class Node:
    """A server and the connections to it.

    Args:
        host: None = wherever the URL leads to.
        connections: that are used at a time, and kept; further requests wait.
        on_upheaval: called when it is not the server that it was.
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
        self._met: Mapping[str, Any] = {}  # what INFO says
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
        """The replies; errors stand in their places, cancellation passes.

        Args:
            confirmed: see ``Servers.exchange``.
            safety: what is not as safe as it has to be has ``Unconfirmed`` for a reply.
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
                self._ask_until_it_answers()
            return [error] * len(commands)
        if any(isinstance(reply, redis.exceptions.ReadOnlyError) for reply in replies):
            await self.drop_idle()
        if safety is not None:
            return _as_safe_as(safety, replies.pop(), replies)
        if waits:
            self._note_confirmation(replies.pop())
        return replies

    async def keepalive(self) -> None:
        """Each idle connection is asked; those that died without a word are closed."""
        asked, self.idle = self.idle, []
        talks = (self._talk(each, [("PING",)], _PROBE_TIMEOUT_SECONDS) for each in asked)
        await asyncio.gather(*talks, return_exceptions=True)

    def hosts(self) -> tuple[connecting.Host, ...]:
        """Of the primary, where Sentinel has said it, and of its replicas."""
        primary = getattr(self.pool, "master_address", None)
        known = () if primary is None else (primary,)
        return (*known, *connecting.replica_hosts(self._met))

    async def refresh(self) -> None:
        """Who it is now, and how many replicas it has; trouble shows in the next command."""
        (said,) = await self.exchange([("INFO", "replication")])
        if isinstance(said, Exception):
            return
        if _is_replica(said) and not self._takes_replicas:
            await self.drop_idle()
        else:
            await self._note({**self._met, **said})

    async def close(self) -> None:
        """End everything; what is under way ends by itself."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        await self.drop_idle()
        await self.pool.aclose()

    async def _send(
        self, commands: Sequence[Command], seconds: float, *, arms: bool = False, asks: bool = False
    ) -> list[Any]:
        """The replies; a server that does not answer for so long is away.

        Waiting for a connection, while others have all that there are, says nothing about the
        server, so the limit begins behind it.
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
        """One write, then all replies; a connection on which some may be left is closed."""
        try:
            await self._connect(connection, upheavals)
            run_id = self._who(connection)
            packed = [
                hiredis.pack_command((*each[:-1], run_id) if each[-1] is RUN_ID else each)
                for each in commands
            ]
            async with AnswerWithin(seconds):
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
        """Close what no request uses."""
        idle, self.idle = self.idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    def _ask_until_it_answers(self) -> None:
        if self._asking is None and not self._is_closed:
            self._asking = asyncio.create_task(self._ask(), name="silent server of the queue")

    async def _ask(self) -> None:
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

    def _who(self, connection: Any) -> str:  # noqa: ANN401 - of the library
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
                "READONLY the server is a replica; the primary is what is needed"
            )
        await self._note(said)

    async def _note(self, said: Mapping[str, Any]) -> None:
        met, self._met = self._met, said
        self.replicas = int(said.get("connected_slaves", 0))
        is_other = any(met.get(name) != said.get(name) for name in ("run_id", "master_replid"))
        if is_other or _is_replica(met):  # it may have become a primary just now
            self._met_at = asyncio.get_running_loop().time()
        if met and is_other:
            log.warning("the server is not the one it was; what was written last may be lost")
            self.upheavals += 1
            self._on_upheaval()
            await self.drop_idle()

    def _note_confirmation(self, replicas: Any) -> None:  # noqa: ANN401 - a number or an error
        if isinstance(replicas, int) and replicas > 0:
            return
        self.unconfirmed += 1
        self._confirm_from = asyncio.get_running_loop().time() + _CONFIRM_PAUSE_SECONDS
        log.warning("no replica has confirmed a write", answer=str(replicas))


def _as_safe_as(safety: Safety, reached: object, replies: Sequence[Any]) -> list[Any]:
    if safety.is_reached(reached):
        return list(replies)
    where = "on disk" if safety.on_disk else "in memory"
    unsafe = f"{safety.replicas} replicas {where} were asked for; the server answers {reached}"
    return [each if isinstance(each, Exception) else Unconfirmed(unsafe) for each in replies]


def _is_replica(said: Mapping[str, Any]) -> bool:
    return said.get("role") == "slave"


async def _is_good(connection: Any) -> bool:  # noqa: ANN401 - of the library
    """Whether it is connected, no bytes are left, and the other side has not hung up."""
    try:
        return connection.is_connected and not await connection.can_read()
    except (redis.exceptions.RedisError, OSError):
        return False


class ServerChanges:
    """Counts changes, and calls those who have to know.

    Attributes:
        generation: grows whenever it may have changed who holds what.
        upheavals: how often a server turned out not to be the one it was: writes may be lost.
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
        """The generation, once it is not the one that was seen."""
        while self.generation == seen:
            await self._changed.wait()
        return self.generation

    def note_upheaval(self) -> None:
        self.upheavals += 1
        for report in self.on_upheaval:
            report()


#: A timer that comes later than this was kept waiting by other work.
_LATE_SECONDS = 0.02
#: What is left to be done once an answer is there takes a few turns of the loop: the bytes are
#: read, the reader wakes up, a further reply may be read.
_TURNS = 4
_LEAST_SECONDS = 0.05


class AnswerWithin:
    """As ``asyncio.timeout``, and up to twice as long where this process itself is late.

    A timer of the event loop that is overdue is carried out in the same turn in which the loop
    learns of the bytes that have come, and before they are read. So in a process that was stopped,
    or that has more to do than its share of the CPU allows, a plain timeout gives up answers that
    are there already, takes a good server for one that is away, and makes more work of it. Here a
    limit that is met late is put off, by as much as some more turns of such a loop take.
    """

    __slots__ = ("_last", "_limit", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        began = asyncio.get_running_loop().time()
        self._last = began + 2 * self._seconds
        self._set(began + self._seconds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, error, traceback)

    def _set(self, instant: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(instant, self._end, instant)

    def _end(self, expected: float) -> None:
        now = asyncio.get_running_loop().time()
        late = now - expected
        if late <= _LATE_SECONDS or now >= self._last:
            self._limit.reschedule(now)
        else:
            self._set(min(now + max(_LEAST_SECONDS, _TURNS * late), self._last))
