"""A server of its own, an index on it, and points put there in bulk.

Points go in by plain commands, under the names the queue itself would use: what is measured is
taking them out. Definitions, where a benchmark needs them, are packed by the queue's own code.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import redis

from duepoint.delayqueue import delayqueue, keys, messages
from tests.support.redisserver import RedisServer

KEY = b"thirty-two bytes for a benchmark"
EPOCH = messages.Epoch(1)
_CHUNK = 2_000


@contextlib.contextmanager
def server(kind: str = "valkey", *options: str) -> Iterator[RedisServer]:
    """One server, nothing persisted; the defaults otherwise (``hz`` among them)."""
    with tempfile.TemporaryDirectory() as folder:
        running = RedisServer(kind, Path(folder), *options)
        running.start()
        try:
            yield running
        finally:
            running.stop()


@contextlib.asynccontextmanager
async def queue(server: RedisServer, shards: int) -> AsyncIterator[delayqueue.DelayQueue]:
    """The real queue on an index of its own."""
    opened = delayqueue.connect(server.url, blob_key=KEY)
    await opened.start()
    await opened.membership.open(shards, EPOCH)
    try:
        yield opened
    finally:
        await opened.close()


def names(layout: messages.Layout, shard: int) -> keys.ShardKeys:
    """The key names of a shard, with the usual prefix."""
    return keys.IndexKeys().shard(layout.number, messages.ShardId(shard))


def put_points(
    client: redis.Redis, shard: keys.ShardKeys, lanes: int, count: int, due_us: int
) -> None:
    """So many chain points of distinct schedules, all due at one time, spread evenly over lanes."""
    numbers = range(1, lanes + 1)
    put_members(client, [shard.lane(number) for number in numbers], count, due_us)
    for number in numbers:
        client.zadd(shard.lane(number), {b"": float("inf")})
        client.zadd(shard.heads, {str(number): due_us})


def put_members(client: redis.Redis, names: list[str], count: int, due_us: int) -> None:
    """Random members of twelve bytes, spread evenly over these sorted sets."""
    for name in names:
        left = count // len(names)
        while left > 0:
            client.zadd(name, {os.urandom(12): due_us for _ in range(min(left, _CHUNK))})
            left -= _CHUNK


def now_us() -> int:
    return time.time_ns() // 1000
