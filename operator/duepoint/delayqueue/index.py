"""One process's access to the index: servers, scripts, names of keys, and the last layout read.

Every service of the queue shares this object. It owns the connections and caches the layout and the
number of buckets. Callers never see the library's errors: they are translated here and in
``wire.scripting``. The cache belongs to this process: a service reads the layout again when a shard
answers that it has changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import redis.asyncio

from duepoint import clock as clocks
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import keys as keys_
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.wire import scripting, servers

_COMMANDS_PER_EXCHANGE = 1_000
_KEYS_PER_GROUP = 8
#: Most pairs of script and shard whose fixed keys are cached.
_MOST_CACHED_KEYS = 16_384


class Index:
    """The access to the index that all services share.

    Attributes:
        pipelined: script calls made in one turn of the event loop share a round trip.
        pipelined_durably: the same for scripts that arm; replies wait for a replica.
        layout: the layout that was read last; None = none yet.
        on_layout: called when a different layout has been read.
        buckets: number of buckets in a new index; an existing index keeps its own.
        stored: how often this process has sent rows to be stored.
    """

    def __init__(
        self, opened: servers.Servers, names: keys_.IndexKeys, clock: clocks.Clock, *, buckets: int
    ) -> None:
        self.servers = opened
        self.scripts = scripting.Scripts(opened)
        self.keys = names
        self.clock = clock
        self.pipelined = scripting.Pipelining(self.scripts.run_many)
        durably = functools.partial(self.scripts.run_many, confirmed=True)
        self.pipelined_durably = scripting.Pipelining(durably)
        self.layout: messages.Layout | None = None
        self.on_layout: list[Callable[[], None]] = []
        self.buckets = buckets
        self.stored = 0
        self._cached_keys: dict[tuple[str, messages.ShardId | None], list[str]] = {}

    @property
    def client(self) -> redis.asyncio.Redis:
        """The client of a single server, for tests that read the keys themselves."""
        return cast("servers.OneServer", self.servers).client

    def known_layout(self) -> messages.Layout:
        """Return the layout that was read last; raises Uninitialised if there was none yet."""
        if self.layout is None:
            raise queue_errors.Uninitialised(
                "the layout has not been read: call layouts.read() first"
            )
        return self.layout

    async def whereabouts(
        self, asked: Mapping[messages.ShardId, bytes]
    ) -> dict[messages.ShardId, dict[str, object]]:
        """Return script arguments that tell whether each shard's former server is still a primary.

        Scripts ask for them with the answer ``other`` and that server's run id. If it is still a
        primary, it has handed over the complete shard. If it died or is a replica, it has not.
        """
        if not asked:
            return {}
        primaries = set()
        for replies in await self.servers.everywhere([("INFO", "server"), ("INFO", "replication")]):
            if not any(isinstance(reply, Exception) for reply in replies):
                server, replication = replies
                if replication.get("role") == "master":
                    primaries.add(str(server.get("run_id")).encode())
        return {
            shard: {"former": former.decode(), "moved": former in primaries}
            for shard, former in asked.items()
        }

    def shards_beside(self, shard: messages.ShardId) -> int:
        """Return how many shards the layout of this shard has: the current layout or the former."""
        layout = self.known_layout()
        if layout.former is not None and sharding.layout_of(shard) == layout.former.number:
            layout = layout.former
        return layout.shards

    def shard(self, shard: messages.ShardId) -> keys_.ShardKeys:
        """Return the names of a shard's keys; raises Uninitialised if no layout has been read."""
        self.known_layout()
        return self.keys.shard(sharding.layout_of(shard), sharding.index_of(shard))

    def call(
        self, script: str, shard: messages.ShardId | None, /, *keys: str, **named: object
    ) -> scripting.ScriptCall:
        """Build a call of a script, with the fixed keys that it uses; this sends nothing.

        Args:
            shard: None = the script is about the whole index.
            keys: keys beyond the fixed ones of the shard or index, in their order.
            named: see ``scripting.ScriptCall``.
        """
        if shard is not None:
            named["layout"] = sharding.layout_of(shard)
        return scripting.ScriptCall(script, [*self._fixed_keys(script, shard), *keys], **named)

    def _fixed_keys(self, script: str, shard: messages.ShardId | None) -> Sequence[str]:
        """Return the fixed keys of the shard or index that a script uses."""
        found = self._cached_keys.get((script, shard))
        if found is None:
            names: keys_.ShardKeys | keys_.IndexKeys = self.keys
            if shard is not None:
                names = self.keys.shard(sharding.layout_of(shard), sharding.index_of(shard))
            known = vars(names)
            found = [known[name] for name in scripting.fixed_keys(script) if name in known]
            if len(self._cached_keys) >= _MOST_CACHED_KEYS:
                self._cached_keys.clear()
            self._cached_keys[script, shard] = found
        return found

    def buckets_of(self, shard: messages.ShardId, namespaces: Iterable[str]) -> list[str]:
        """Return the names of a shard's buckets that may hold definitions of these namespaces."""
        return self.buckets_of_populations(shard, map(keys_.population_of, namespaces))

    def buckets_of_populations(
        self, shard: messages.ShardId, populations: Iterable[str]
    ) -> list[str]:
        """Return the names of all buckets of these populations in a shard, each once."""
        names = self.shard(shard)
        return [
            names.bucket(population, number)
            for population in sorted(set(populations))
            for number in range(self.buckets)
        ]

    async def read(self, attempted: str, *commands: tuple[Any, ...]) -> list[Any]:
        """Run plain commands, reads or writes, in one round trip; return their replies.

        Args:
            attempted: what the commands are for; error messages quote it.
        """
        return scripting.good(await self.servers.exchange(commands), attempted)

    async def existing(self, attempted: str, keys: Sequence[str]) -> list[str]:
        """Return which of one shard's keys may exist: all keys of each group that has any.

        An index of some hundred schedules has few of the hashes that a shard can have. One command
        counts all of the keys, and if some exist, one command counts those of each group.
        """
        if not keys:
            return []
        (count,) = await self.read(attempted, ("EXISTS", *keys))
        if count == 0:
            return []
        if count == len(keys):
            return list(keys)
        groups = [
            keys[first : first + _KEYS_PER_GROUP] for first in range(0, len(keys), _KEYS_PER_GROUP)
        ]
        counts = await self.read_many(attempted, [("EXISTS", *group) for group in groups])
        return [key for group, some in zip(groups, counts, strict=True) if some for key in group]

    async def read_many(self, attempted: str, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run many commands, in parts that do not block the server; return their replies."""
        replies: list[Any] = []
        for first in range(0, len(commands), _COMMANDS_PER_EXCHANGE):
            replies += await self.read(attempted, *commands[first : first + _COMMANDS_PER_EXCHANGE])
        return replies
