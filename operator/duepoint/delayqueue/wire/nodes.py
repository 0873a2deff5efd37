"""One server: commands in, replies in the same order out, an error in the place of its reply.

A Node owns its pool. Commands of one call travel on one connection and are answered in order, so
that a read behind a script is a read after it. A connection that broke takes the idle ones beside
it along: after a restart of the server they are just as dead, and each would cost one more
failure; so does READONLY, which means that another server is the primary now.

A Node also knows whether it is the server that it was: ``upheavals`` counts how often a new
connection found another process (``run_id``) or another history (``master_replid``) than the one
before it. What was written last may be lost then; the leader compares everything.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis.asyncio
import redis.exceptions
import structlog

from duepoint import faults
from duepoint.delayqueue.wire import connecting, timelimits
from duepoint.faults import FaultPoint

log = structlog.get_logger(__name__)

#: A command without an answer for so long is given up, and its connection with it.
COMMAND_TIMEOUT_SECONDS = 5.0
#: How long a write waits for a replica to have it, and how long a replica that was too slow for
#: that is not waited for again.
_CONFIRM_MS = 100
_CONFIRM_PAUSE_SECONDS = 5.0

#: Commands whose replies are used as they come.
_PLAIN = frozenset({"EVALSHA", "HMGET", "ZMSCORE"})

Command = tuple[Any, ...]


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


#: As the last value of a command: the run id of the server that the command is sent to, '' where it
#: does not tell. Put in with the connection in hand, so it cannot be that of another server. For so
#: long after that process was met as a primary follow, after a space, the microseconds since then.
RUN_ID = object()
_NEWLY_MET_SECONDS = 5.0


class Node:
    """A server and the connections to it.

    Args:
        host: None = wherever the URL leads to.
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
        self._met: connecting.Greeting | None = None
        self._met_at = 0.0
        self._run_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._confirm_from = 0.0
        self.replicas = 0
        self.replica_hosts: tuple[connecting.Host, ...] = ()
        self.unconfirmed = 0
        self.pool = connecting.make_pool(server, host, connections=connections, greet=self._greet)
        self.client: redis.asyncio.Redis = redis.asyncio.Redis.from_pool(self.pool)

    async def exchange_safely(self, commands: Sequence[Command], safety: Safety) -> list[Any]:
        """As ``exchange``; what is not as safe as it has to be has ``Unconfirmed`` for a reply."""
        try:
            limit = COMMAND_TIMEOUT_SECONDS + safety.timeout_ms / 1_000
            *replies, reached = await self._send([*commands, safety.command()], limit)
        except (redis.exceptions.RedisError, OSError) as error:
            await self._drop_idle()
            return [error] * len(commands)
        if safety.is_reached(reached):
            return replies
        return [
            reply if isinstance(reply, Exception) else Unconfirmed(_unreached(safety, reached))
            for reply in replies
        ]

    async def exchange(self, commands: Sequence[Command], *, confirmed: bool = False) -> list[Any]:
        """The replies; errors stand in their places, cancellation passes."""
        now = asyncio.get_running_loop().time()
        waits = confirmed and self.replicas > 0 and now >= self._confirm_from
        sent = [*commands, ("WAIT", 1, _CONFIRM_MS)] if waits else commands
        try:
            await faults.reach(FaultPoint.BEFORE_COMMANDS)
            try:
                replies = await self._send(sent, COMMAND_TIMEOUT_SECONDS)
            except connecting.ServerChanged:
                if confirmed:
                    raise
                replies = await self._send(sent, COMMAND_TIMEOUT_SECONDS)
            await faults.reach(FaultPoint.AFTER_REPLIES)
        except (redis.exceptions.RedisError, OSError) as error:  # TimeoutError is an OSError
            await self._drop_idle()
            return [error] * len(commands)
        if any(isinstance(reply, redis.exceptions.ReadOnlyError) for reply in replies):
            await self._drop_idle()
        if waits:
            self._note_confirmation(replies.pop())
        return replies

    async def keepalive(self) -> None:
        """Each idle connection is asked; those that died without a word are closed."""
        await self.pool.probe(("PING",))

    async def look(self) -> None:
        """Who it is now, and how many replicas it has; trouble shows in the next command."""
        (said,) = await self.exchange([("INFO", "replication")])
        if isinstance(said, Exception) or self._met is None:
            return
        found = connecting.greeting_of(said, run_id=self._met.run_id)
        if found.is_replica and not self._takes_replicas:
            await self._drop_idle()
        else:
            self._note(found)

    async def close(self) -> None:
        await self.client.aclose(close_connection_pool=True)  # type: ignore[attr-defined,unused-ignore]

    async def _send(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        """The replies; a server that does not answer for so long is away."""
        if all(command[0] in _PLAIN for command in commands):
            return await self._send_plain(commands, seconds)
        async with timelimits.AnswerWithin(seconds):
            return await self._send_by_library(commands)

    async def _send_by_library(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:
            try:
                (command,) = _with_run_id(commands, "")
                return [await self.client.execute_command(*command)]  # type: ignore[no-untyped-call]
            except redis.exceptions.ResponseError as error:
                return [error]
        pipeline = self.client.pipeline(transaction=False)
        for command in _with_run_id(commands, ""):
            pipeline.execute_command(*command)
        return await pipeline.execute(raise_on_error=False)

    async def _send_plain(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        """Their replies need no translation, so the library's layers for that are left out.

        The connection itself closes when it fails, or when we are cancelled while it waits. Waiting
        for one, while others have all that there are, says nothing about the server: the pool has a
        limit of its own for that.
        """
        connection: Any = await self.pool.get_connection()
        try:
            asked = _with_run_id(commands, self._who(connection))
            packed = [part for each in asked for part in connection.pack_command(*each)]
            async with timelimits.AnswerWithin(seconds):
                await connection.send_packed_command(packed, check_health=False)
                await faults.reach(FaultPoint.AFTER_COMMANDS_SENT)
                replies = [await _reply(connection) for _ in commands]
            self.pool.answers += 1
            return replies
        finally:
            await self.pool.release(connection)

    def _who(self, connection: Any) -> str:  # noqa: ANN401 - of the library
        run_id = self._run_ids.get(connection, "")
        met = self._met
        if not run_id or met is None or met.run_id != run_id or met.is_replica:
            return run_id
        seconds = asyncio.get_running_loop().time() - self._met_at
        return f"{run_id} {seconds * 1e6:.0f}" if seconds < _NEWLY_MET_SECONDS else run_id

    async def _drop_idle(self) -> None:
        await self.pool.drop_idle()

    async def _greet(self, connection: redis.asyncio.Connection) -> None:
        self._run_ids.pop(connection, None)
        said = await connecting.greeting(connection)
        await faults.reach(FaultPoint.AFTER_QUEUE_GREETING)
        self._run_ids[connection] = said.run_id
        if said.is_replica and not self._takes_replicas:
            raise redis.exceptions.ConnectionError(
                "READONLY the server is a replica; the primary is what is needed"
            )
        self._note(said)

    def _note(self, said: connecting.Greeting) -> None:
        met, self._met = self._met, said
        if met is None or _is_other(met, said):
            self._met_at = asyncio.get_running_loop().time()
        self.replicas = said.replicas
        self.replica_hosts = said.replica_hosts
        if met is None:
            return
        if (met.run_id, met.replication_id) != (said.run_id, said.replication_id):
            log.warning("the server is not the one it was; what was written last may be lost")
            self.pool.upheavals += 1
            self._on_upheaval()

    def _note_confirmation(self, replicas: Any) -> None:  # noqa: ANN401 - a number or an error
        if isinstance(replicas, int) and replicas > 0:
            return
        self.unconfirmed += 1
        self._confirm_from = asyncio.get_running_loop().time() + _CONFIRM_PAUSE_SECONDS
        log.warning("no replica has confirmed a write", answer=str(replicas))


def _unreached(safety: Safety, reply: object) -> str:
    where = "on disk" if safety.on_disk else "in memory"
    return f"{safety.replicas} replicas {where} were asked for; the server answers {reply}"


def _is_other(met: connecting.Greeting, said: connecting.Greeting) -> bool:
    """Another process, or one that has become a primary, or may have been none meanwhile."""
    before = (met.run_id, met.replication_id, met.is_replica)
    return before != (said.run_id, said.replication_id, said.is_replica)


def _with_run_id(commands: Sequence[Command], run_id: str) -> Sequence[Command]:
    return [
        (*each[:-1], run_id) if each[-1] is RUN_ID else each  # a claim, and nothing else
        for each in commands
    ]


async def _reply(connection: Any) -> Any:  # noqa: ANN401 - of the library
    try:
        return await connection.read_response()
    except redis.exceptions.ResponseError as error:
        return error


#: From one question to the next.
_ASK_SECONDS = 0.25

#: Asks a node whether it is there; its reply, or an error in the place of it.
Ask = Callable[[connecting.Host], Awaitable[object]]


class NodeHealth:
    """Remembers nodes of a cluster that do not answer, so that only their own shards wait for them.

    A command without an answer is given up after five seconds, and commands for other nodes in the
    same call wait as long. So that happens once: a node that let a command time out gets nothing
    but a PING, from a task of its own, until it answers or is no primary any more. A node that
    refuses connections needs none of this, because it fails at once.
    """

    def __init__(self, ask: Ask, on_answer: Callable[[], None]) -> None:
        self._ask = ask
        self._on_answer = on_answer
        self._asking: dict[connecting.Host, asyncio.Task[None]] = {}

    def note(self, host: connecting.Host, replies: Iterable[object]) -> None:
        """What this node has replied."""
        if host not in self._asking and any(map(_is_timeout, replies)):
            task = asyncio.create_task(self._wait_for(host), name=f"health of {host[0]}:{host[1]}")
            self._asking[host] = task

    def of(self, host: connecting.Host) -> Exception | None:
        """What stands for its replies; None where it is to be asked."""
        if host not in self._asking:
            return None
        return redis.exceptions.TimeoutError(f"{host[0]}:{host[1]} has not answered for a while")

    def keep(self, hosts: Iterable[connecting.Host]) -> None:
        """Forget all other nodes."""
        for host in self._asking.keys() - set(hosts):
            self._asking.pop(host).cancel()

    async def close(self) -> None:
        """Ask no more."""
        asking = list(self._asking.values())
        self._asking.clear()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _wait_for(self, host: connecting.Host) -> None:
        try:
            while _is_timeout(await self._ask(host)):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(_ASK_SECONDS)
        finally:  # an error of the question must not give the node up for ever
            if self._asking.get(host) is asyncio.current_task():
                del self._asking[host]
                self._on_answer()


def _is_timeout(reply: object) -> bool:
    return isinstance(reply, TimeoutError | redis.exceptions.TimeoutError)
