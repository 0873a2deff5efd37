"""Statistics of each shard of a queue, for tests."""

from __future__ import annotations

from dataclasses import dataclass

from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStats:
    """Counts of a shard; ``lag_us``: how long its oldest unclaimed point has been due, or 0."""

    shard: messages.ShardId
    points: int
    due: int
    claimed: int
    claims: int
    outcomes: int
    dead: int
    lag_us: int


async def read(queue) -> list[ShardStats]:
    """Return the statistics of every shard."""
    shards = sharding.all_shards(queue.index.known_layout())
    return [await _of_shard(queue, shard) for shard in shards]


async def _of_shard(queue, shard: messages.ShardId) -> ShardStats:
    names = queue.index.shard(shard)
    lanes = [names.lane(lane) for lane in await queue.definitions.lanes(shard)]
    limit = points.DUE_LIMIT_US
    time, claims, outcomes, heads, *counts = await queue.index.read(
        "read the statistics",
        ("TIME",),
        ("ZCARD", names.claims),
        ("XLEN", names.runs),
        ("ZRANGE", names.heads, 0, 0, "WITHSCORES"),
        *(("ZCOUNT", lane, "-inf", "(+inf") for lane in lanes),
        *(("ZCOUNT", lane, limit, "(+inf") for lane in lanes),
    )
    now = scripting.time_us(time)
    due = await queue.index.read(
        "read the statistics", *(("ZCOUNT", lane, "-inf", now) for lane in lanes)
    )
    letters = [each async for each in queue.dead_letters.newest()]
    lags = [max(0, now - int(score)) for head, score in scripting.scored(heads) if head]
    return ShardStats(
        shard=shard,
        points=sum(counts[: len(lanes)]),
        due=sum(due),
        claimed=sum(counts[len(lanes) :]),
        claims=max(0, claims - 1),  # the sentinel
        outcomes=outcomes,
        dead=sum(1 for each in letters if each.shard == shard),
        lag_us=max(lags, default=0),
    )
