"""The product's delay queue on a real Valkey, in virtual time.

``VirtualQueue`` is the product's ``DelayQueue`` with its own scripts; the test moves the server's
clock. The server carries out a command in one step, within one turn of the event loop, so
``FakeClock.settle`` knows when nothing is left to do. Each test process has one server, which a new
queue empties: there is one queue at a time.

A test can make the server unreachable (``available``, ``away``), empty it (``flush``), return it to
an earlier state (``snapshot``, ``fall_back``) and inspect it (``shards``, ``stream_entries``).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import math
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import redis.exceptions

from duepoint import clock as clocks
from duepoint.delayqueue import deadletters, delayqueue, messages, quotas, sharding
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.definitions import records, signedblobs
from duepoint.delayqueue.wire import connecting, nodes
from duepoint.schedules import definition, points
from tests.support import virtualvalkey

BLOB_KEY = b"a key for tests!"
#: As in ``nodes``.
_NEWLY_MET_SECONDS = 5.0

T = TypeVar("T")


@functools.cache
def the_server() -> virtualvalkey.SimulatedValkey:
    """Return the server of this process, which lives until the process ends."""
    held = contextlib.ExitStack()
    atexit.register(held.close)
    return held.enter_context(virtualvalkey.a_valkey())


class _Listener:
    """A subscription: the part of ``redis.asyncio.client.PubSub`` that the product uses."""

    def __init__(self, servers: VirtualServers) -> None:
        self._listeners = servers.listeners
        self._messages: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()
        self._channels: set[str] = set()

    async def ssubscribe(self, *channels: str) -> None:
        self._listeners.append(self)
        for channel in channels:
            self._channels.add(channel)
            self._messages.put_nowait({"type": "ssubscribe", "channel": channel.encode()})

    async def get_message(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - the library's name
    ) -> dict[str, Any]:
        del timeout  # of real seconds
        found = await self._messages.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def aclose(self) -> None:
        if self in self._listeners:
            self._listeners.remove(self)

    def hear(self, channel: str, data: bytes) -> None:
        if channel in self._channels:
            message = {"type": "smessage", "channel": channel.encode(), "data": data}
            self._messages.put_nowait(message)

    def lose(self) -> None:
        self._messages.put_nowait(redis.exceptions.ConnectionError("closed by the server"))


class _ListeningClient:
    """The part of ``redis.asyncio.Redis`` that a subscription needs."""

    def __init__(self, servers: VirtualServers) -> None:
        self._servers = servers

    def pubsub(self) -> _Listener:
        return _Listener(self._servers)

    async def aclose(self, *, close_connection_pool: bool) -> None:
        del close_connection_pool


class VirtualServers:
    """A process's connections to the server; a ``delayqueue.wire.servers.Servers``.

    Attributes:
        available: whether it answers.
        away: parts of key names for which it does not answer.
    """

    is_cluster = False

    def __init__(self, valkey: virtualvalkey.SimulatedValkey, clock: clocks.Clock) -> None:
        self.changes = nodes.ServerChanges()
        self.available = True
        self.away: Sequence[str] = ()
        self.listeners: list[_Listener] = []
        self._valkey = valkey
        self._clock = clock
        self._met = 0
        self._met_at = -math.inf

    async def exchange(
        self,
        commands: Sequence[nodes.Command],
        *,
        confirmed: bool = False,
        safety: nodes.Safety | None = None,
    ) -> list[Any]:
        """See ``nodes.Node``; there is no replica, and the disk is as safe as the memory."""
        await asyncio.sleep(0)
        if not self.available:
            return [redis.exceptions.ConnectionError("the test took the server away")] * len(
                commands
            )
        if self._meet() and confirmed:
            return [connecting.ServerChanged("the server was replaced")] * len(commands)
        sent = [
            (*each[:-1], self._who()) if each[-1] is nodes.RUN_ID else each for each in commands
        ]
        is_there = [not self._is_away(each) for each in sent]
        replies = iter(
            self._valkey.carry_out(
                [each for each, there in zip(sent, is_there, strict=True) if there]
            )
        )
        self.publish()
        away = redis.exceptions.ConnectionError("the test took the server of this shard away")
        answers = [next(replies) if there else away for there in is_there]
        alone = [1, 0] if safety and safety.on_disk else 0
        return nodes.as_safe_as(safety, alone, answers) if safety else answers

    def _is_away(self, command: nodes.Command) -> bool:
        names = [each for each in command if isinstance(each, str)] if self.away else ()
        return any(part in name for name in names for part in self.away)

    def _meet(self) -> bool:
        """Whether the server is another one than before."""
        met, self._met = self._met, self._valkey.run
        if met == self._met:
            return False
        self._met_at = self._clock.monotonic()
        if met:
            self.changes.note_upheaval()
        return bool(met)

    def _who(self) -> str:
        seconds = self._clock.monotonic() - self._met_at
        run_id = self._valkey.run_id
        return f"{run_id} {seconds * 1e6:.0f}" if seconds < _NEWLY_MET_SECONDS else run_id

    def publish(self, *more: tuple[str, bytes]) -> None:
        """Deliver the messages that scripts have published, and ``more``."""
        for channel, data in (*self._valkey.published(), *more):
            for listener in self.listeners:
                listener.hear(channel, data)

    async def everywhere(self, commands: Sequence[nodes.Command]) -> list[list[Any]]:
        return [await self.exchange(commands)]

    async def keepalive(self) -> None:
        pass

    async def refresh(self) -> None:
        if self.available:
            self._meet()

    def hosts(self) -> tuple[connecting.Host, ...]:
        return ()

    def homes(self, names: Sequence[str]) -> Mapping[Hashable, Sequence[str]]:
        """Return the home of each shard; shards that are away have one of their own."""
        at: dict[Hashable, list[str]] = {}
        for name in names:
            at.setdefault(any(part in name for part in self.away), []).append(name)
        return at

    def listener(self, home: Hashable) -> Any:
        del home
        return _ListeningClient(self)

    async def close(self) -> None:
        pass


class ShardView:
    """A live view of a shard's contents."""

    def __init__(self, queue: VirtualQueue, number: messages.ShardId) -> None:
        self.number = number
        self._inspector = queue.inspector
        self._names = self._inspector.index.shard(number)
        self.tag = self._names.tag

    @property
    def definitions(self) -> dict[points.ScheduleId, definition.Definition]:
        found = look_at_each(f"{self.tag}:defs:*", "HKEYS")
        ids = [points.ScheduleId(each) for keys in found.values() for each in keys]
        if not ids:
            return {}
        return dict(at_once(self._inspector.definitions.read_here(self.number, ids)))

    @property
    def members(self) -> dict[bytes, int]:
        """Return points with their due times; those of claims begin at ``DUE_LIMIT_US``."""
        return points_of(self.tag)

    @property
    def doubt(self) -> bool:
        """Whether its server fell back, and Schedules due by then have not been put again."""
        return look("HEXISTS", self._names.meta, "doubt") == 1

    @property
    def records(self) -> dict[bytes, messages.OccurrenceRecord]:
        flat = look("HGETALL", self._names.occrec)
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        return {member: records.unpack(record) for member, record in found.items() if member}

    @property
    def claims(self) -> list[bytes]:
        return [id_ for id_ in look("ZRANGE", self._names.claims, 0, -1) if id_]

    @property
    def crashes(self) -> list[int]:
        """Return how many owners each point has crashed; see ``messages.Claim.alone``."""
        return [int(count) for count in look("HVALS", self._names.crashes)]

    @property
    def outcomes(self) -> list[bytes]:
        """Return the entries that the status writer has not acknowledged."""
        return [entry for entry, _ in look("XRANGE", self._names.runs, "-", "+")]

    @property
    def dead(self) -> list[deadletters.DeadEntry]:
        """Return the dead letters, oldest first."""
        return at_once(self._dead())[::-1]

    async def _dead(self) -> list[deadletters.DeadEntry]:
        found = self._inspector.dead_letters.newest()
        return [letter async for letter in found if letter.shard == self.number]


class VirtualQueue(delayqueue.DelayQueue):
    """The delay queue on a server that a test controls."""

    def __init__(
        self,
        clock: clocks.Clock,
        *,
        blob_key: bytes = BLOB_KEY,
        quotas: quotas.Quotas = quotas.USUAL,
    ) -> None:
        self._valkey = the_server()
        self._valkey.begin(clock.now_us)
        self.servers = VirtualServers(self._valkey, clock)
        super().__init__(self.servers, blob_key=blob_key, clock=clock, buckets=1, quotas=quotas)

    # -- what befalls the server -----------------------------------------------------------------

    @property
    def available(self) -> bool:
        return self.servers.available

    @available.setter
    def available(self, available: bool) -> None:
        self.servers.available = available

    def take_away(self, *shards: messages.ShardId) -> None:
        """Make these shards unreachable, and all others reachable."""
        self.servers.away = [f"{self.index.shard(shard).tag}:" for shard in shards]

    def flush(self) -> None:
        """Empty the server, as FLUSHALL does."""
        self._valkey.flush()

    def hide(self, pattern: str) -> Callable[[], None]:
        """Hide these keys until the returned function is called."""
        hidden = self.snapshot(pattern)
        look("UNLINK", *hidden)
        return lambda: self._restore(hidden)

    def snapshot(self, pattern: str = "*") -> dict[bytes, bytes]:
        """Return what the server would write to its disk."""
        names = look("KEYS", pattern)
        return dict(zip(names, self._valkey.look(*(("DUMP", name) for name in names)), strict=True))

    def _restore(self, state: Mapping[bytes, bytes]) -> None:
        self._valkey.look(*(("RESTORE", name, 0, dump, "REPLACE") for name, dump in state.items()))

    def fall_back(self, state: Mapping[bytes, bytes]) -> None:
        """Replace the server by another process that loaded this state; cut all connections."""
        self._valkey.flush()
        self._restore(state)
        self._valkey.restart()
        for listener in tuple(self.servers.listeners):
            listener.lose()

    def fail_over(self, has_copied: Callable[[], bool] = lambda: False) -> None:
        """Promote a replica that has copied everything except perhaps some active runs."""
        look("DEBUG", "CHANGE-REPL-ID")
        for active in look("KEYS", "*:active:*"):
            gone = [run for run in look("HKEYS", active) if run and not has_copied()]
            for run in gone:
                look("HDEL", active, run)

    def change_blob_key(self, key: bytes) -> None:
        """Seal everything stored from now on with this key, and read it with the same."""
        vars(self.signed_blobs).update(vars(signedblobs.SignedBlobs(key)))
        self.definitions.__post_init__()  # a new process would have an empty cache

    def report(
        self, shard: messages.ShardId, outcomes: bytes, *, entry: str = "", is_lost: bool = False
    ) -> None:
        """Report these outcomes, as a worker does with a settlement or for a lost claim."""
        names = self.index.shard(shard)
        entry = entry or f"{self.index.clock.now_us() // 1_000}-*"
        look("XADD", names.runs, entry, "o", outcomes, *(("lost", "1") if is_lost else ()))
        self.servers.publish((names.ran, b""))

    # -- what is in it -----------------------------------------------------------------------------

    @functools.cached_property
    def inspector(self) -> delayqueue.DelayQueue:
        """Return a second queue for the test, whose server always answers."""
        opened = VirtualServers(self._valkey, self.index.clock)
        return delayqueue.DelayQueue(
            opened, blob_key=BLOB_KEY, clock=self.index.clock, buckets=self.index.buckets
        )

    @property
    def shards(self) -> dict[messages.ShardId, ShardView]:
        """Return every shard; none if there is no index."""
        try:
            layout = at_once(self.inspector.layouts.read())
        except queue_errors.Uninitialised:
            return {}
        return {shard: ShardView(self, shard) for shard in sharding.all_shards(layout)}

    @property
    def stream_entries(self) -> dict[str, list[dict[str, str]]]:
        """Return the entries of each user's stream, by namespace and name, oldest first."""
        before = self.index.keys.stream("", "").removesuffix(":")
        return {
            key.decode().removeprefix(before).replace(":", "/", 1): [
                {n.decode(): v.decode() for n, v in zip(flat[::2], flat[1::2], strict=True)}
                for _, flat in entries
            ]
            for key, entries in look_at_each(f"{before}*", "XRANGE", "-", "+").items()
        }


def look(*command: Any) -> Any:
    """Send a command and return the server's raw reply."""
    (reply,) = the_server().look(command)
    if isinstance(reply, Exception):
        raise reply
    return reply


_EACH = """
local found = {}
for i, key in ipairs(redis.call('KEYS', ARGV[1])) do
  found[i] = { key, redis.call(ARGV[2], key, unpack(ARGV, 3)) }
end
return found
"""


def look_at_each(pattern: str, command: str, *arguments: Any) -> dict[bytes, Any]:
    """Send a command for every key of a pattern in one round trip; return the raw replies."""
    return dict(look("EVAL", _EACH, 0, pattern, command, *arguments))


def points_of(tag: str = "*") -> dict[bytes, int]:
    """Return the points of one shard or all, as ``ShardView.members`` does."""
    lanes = look_at_each(f"{tag}:points:*", "ZRANGE", 0, -1, "WITHSCORES")
    both = (pair for flat in lanes.values() for pair in zip(flat[::2], flat[1::2], strict=True))
    return {member: int(float(due)) for member, due in both if member}


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that waits only for turns of the event loop."""
    try:
        while True:
            assert work.send(None) is None, "it waits for something"
    except StopIteration as done:
        return done.value
