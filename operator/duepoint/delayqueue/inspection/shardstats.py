"""Each shard's own counts, for tests and benchmarks; ``counting`` is for whoever watches."""

from __future__ import annotations

from typing import Any

from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import reading
from duepoint.schedules import points


class ShardStats(reading.Reading):
    """stats."""

    async def stats(self) -> list[messages.ShardStats]:
        return [
            await self._shard_stats(shard) for shard in sharding.all_shards(self._known_layout())
        ]

    async def _shard_stats(self, shard: messages.ShardId) -> messages.ShardStats:
        names = self._shard(shard)
        lanes = [names.lane(lane) for lane in await self.namespaces(shard)]
        limit = points.DUE_LIMIT_US
        time, claims, outcomes, dead, head, *counts = await self._read(
            "read the statistics",
            ("TIME",),
            ("ZCARD", names.claims),
            ("XLEN", names.runs),
            ("XLEN", names.dead),
            ("ZRANGE", names.heads, 0, 0, "WITHSCORES"),
            *(("ZCOUNT", lane, "-inf", "(+inf") for lane in lanes),
            *(("ZCOUNT", lane, limit, "(+inf") for lane in lanes),
        )
        now = _time_us(time)
        due = await self._read(
            "read the statistics", *(("ZCOUNT", lane, "-inf", now) for lane in lanes)
        )
        return messages.ShardStats(
            shard=shard,
            points=sum(counts[: len(lanes)]),
            due=sum(due),
            claimed=sum(counts[len(lanes) :]),
            claims=max(0, claims - 1),  # the sentinel
            outcomes=outcomes,
            dead=dead,
            lag_us=_lag(head, now),
        )


def _time_us(reply: Any) -> int:  # noqa: ANN401 - as the library parses TIME
    return int(reply[0]) * 1_000_000 + int(reply[1])


def _lag(head: list[Any], now_us: int) -> int:
    pairs = (
        head if head and isinstance(head[0], tuple | list) else [tuple(head[:2])] if head else []
    )
    for member, score in pairs:
        if member:
            return max(0, now_us - int(float(score)))
    return 0
