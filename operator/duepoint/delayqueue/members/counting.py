"""How many members a set has, how many of their points wait or are held, and how slots ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from duepoint.delayqueue import index, layouts, sharding
from duepoint.delayqueue.definitions import lanes
from duepoint.delayqueue.members import values
from duepoint.delayqueue.wire import scripting
from duepoint.runs import run
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord


@dataclass(eq=False)
class MemberCounting:
    """Counts."""

    index: index.Index
    lanes: lanes.Lanes

    async def members(self, set_: setrecord.SetRecord) -> int:
        """How many members it has; one short command for each shard."""
        numbers = await self.lanes.everywhere(lanes.text_of(set_.identity))
        replies = await self.index.read_many(
            "count the members of a set",
            [
                ("HMGET", self.index.shard(shard).meta, lanes.count_field(lane))
                for shard, lane in numbers.items()
            ],
        )
        return sum(layouts.number_of(counted) for (counted,) in replies)

    async def counts(self, set_: setrecord.SetRecord) -> values.MemberCounts:
        """What the set holds; one round trip for all shards."""
        numbers = await self.lanes.everywhere(lanes.text_of(set_.identity))
        commands: list[tuple[Any, ...]] = []
        tally = lanes.tally_field(set_.identity)
        for shard, lane in numbers.items():
            names = self.index.shard(shard)
            commands += [
                ("HMGET", names.meta, lanes.entry_field(lane), lanes.count_field(lane), tally),
                ("ZCOUNT", names.lane(lane), 0, f"({points.DUE_LIMIT_US}"),
                ("ZCOUNT", names.lane(lane), points.DUE_LIMIT_US, "(+inf"),
                ("ZRANGE", names.lane(lane), 0, 0, "WITHSCORES"),
            ]
        replies = iter(await self.index.read_many("count the members of a set", commands))
        members = armed = in_flight = 0
        ended = run.NONE_ENDED
        without = set(sharding.own_shards(self.index.known_layout()))
        dues: list[int] = []
        for shard, (entry, counted, sums), waiting, held, first in zip(
            numbers, replies, replies, replies, replies, strict=True
        ):
            if entry is not None:
                without.discard(shard)
            members += layouts.number_of(counted)
            ended = ended.plus(run.read_tally(sums))
            armed += waiting
            in_flight += held
            dues += [
                int(score) for _, score in scripting.scored(first) if score < points.DUE_LIMIT_US
            ]
        next_due_us = min(dues, default=None)
        is_overdue = next_due_us is not None and next_due_us <= self.index.clock.now_us()
        return values.MemberCounts(
            members=members,
            armed=armed,
            in_flight=in_flight,
            next_due_us=next_due_us,
            oldest_overdue_us=next_due_us if is_overdue else None,
            shards_without=len(without),
            ended=ended,
        )
