"""A client with which tests reach the server behind a queue.

Tests damage, inspect or clear stored data as administrator over a connection of their own, so that
no test depends on how the queue is built. Names of keys come from ``keys``, the one place that
spells them; nothing here asks the queue. The client connects on the first command; its owner
closes it (``queueing.Harness.close``).
"""

from __future__ import annotations

import functools
from typing import Any

import redis.asyncio

from duepoint.delayqueue import keys, messages, sharding
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points
from tests.support import redisusers

_CLUSTER = "redis+cluster://"


class ServerClient:
    """A client of one server or cluster that knows the names of one index there.

    Args:
        url: as the queue gets it, but without a user, so it means the administrator.
        buckets: the buckets of a population with which the index was made.
    """

    def __init__(self, url: str, prefix: str, *, buckets: int = keys.BUCKETS) -> None:
        self.url, self.prefix, self.buckets = url, prefix, buckets
        self.keys = keys.IndexKeys(prefix)
        self._opened: list[Any] = []

    @functools.cached_property
    def redis(self) -> Any:
        """Return the library's client: for a cluster if the URL says so, else for one server."""
        if self.url.startswith(_CLUSTER):
            first = self.url.removeprefix(_CLUSTER).split(",")[0]
            made = redis.asyncio.RedisCluster.from_url(f"redis://{first}", protocol=2)
        else:
            made = redis.asyncio.Redis.from_url(self.url, protocol=2)
        self._opened.append(made.aclose)
        return made

    @functools.cached_property
    def _scripts(self) -> scripting.Scripts:
        connected = redisusers.TwoUsers(self.url, connections=2)
        self._opened.append(connected.close)
        return scripting.Scripts(connected)

    async def run(self, call: scripting.ScriptCall) -> Any:
        """Call a script as the user whose process calls it, and return the reply."""
        return await self._scripts.run(call)

    def shard(self, shard: int) -> keys.ShardKeys:
        number = messages.ShardId(shard)
        return self.keys.shard(sharding.layout_of(number), sharding.index_of(number))

    def bucket(self, shard: int, schedule_id: points.ScheduleId) -> str:
        """Return the key that stores this definition."""
        return self.shard(shard).bucket_of(schedule_id, self.buckets)

    async def close(self) -> None:
        for close in self._opened:
            await close()
