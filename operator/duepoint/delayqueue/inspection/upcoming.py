"""Reads the points that come next.

Uses only reading commands. The points come from the lanes' heads and not from a walk.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.delayqueue import index, messages
from duepoint.delayqueue.definitions import lanes, reading, records
from duepoint.delayqueue.inspection import counts
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points


@dataclass(frozen=True, slots=True, kw_only=True)
class PointView:
    """One point of the queue that no worker holds.

    Attributes:
        known: its definition; None if there is none (any more).
        record: state of an occurrence.
    """

    shard: messages.ShardId
    namespace: str
    point: points.DuePoint
    due_us: int
    known: definitions.Definition | None
    record: messages.OccurrenceRecord | None = None


@dataclass(eq=False)
class Upcoming:
    """The points that come next."""

    index: index.Index
    reader: reading.DefinitionReader
    counts: counts.Counts

    async def next_points(self, count: int, *, namespace: str | None = None) -> list[PointView]:
        """Return the ``count`` points that are due first, of those that no worker holds."""
        heads = await self.counts.of_each_shard(lambda shard: self._heads(shard, count, namespace))
        # Each lane's first point is its head: the first ``count`` points are in as many lanes.
        first = heapq.nsmallest(count, (head for of_shard in heads for head in of_shard))
        replies = await self.index.read_many(
            "look at the points",
            [
                (
                    *("ZRANGE", self.index.shard(shard).lane(lane)),
                    *("-inf", f"({points.DUE_LIMIT_US}", "BYSCORE", "LIMIT", 0, count),
                    "WITHSCORES",
                )
                for _, shard, lane in first
            ],
        )
        chosen = heapq.nsmallest(
            count,
            (
                (due, shard, lane, member)
                for (_, shard, lane), found in zip(first, replies, strict=True)
                for member, due in scripting.scored(found)
            ),
        )
        by_shard: dict[messages.ShardId, list[tuple[str, bytes, int]]] = {}
        for due, shard, lane, member in chosen:
            by_shard.setdefault(shard, []).append((lane, member, int(due)))
        views = [
            view for shard, found in by_shard.items() for view in await self._views(shard, found)
        ]
        return sorted(views, key=lambda view: view.due_us)

    async def _heads(
        self, shard: messages.ShardId, count: int, namespace: str | None
    ) -> list[tuple[float, messages.ShardId, str]]:
        names = self.index.shard(shard)
        if namespace is None:
            (found,) = await self.index.read(
                "look at the heads", ("ZRANGE", names.heads, 0, count, "WITHSCORES")
            )
            return [(due, shard, lane) for lane, due in counts.lanes_of(scripting.scored(found))]
        lane = lanes.of_namespace(namespace)
        (score,) = await self.index.read("look at the heads", ("ZSCORE", names.heads, lane))
        return [] if score is None else [(scripting.finite(score), shard, lane)]

    async def _views(
        self, shard: messages.ShardId, found: Sequence[tuple[str, bytes, int]]
    ) -> list[PointView]:
        """Return the points with these lanes, members and scores."""
        known = await self.reader.read_definitions(
            shard, {points.ScheduleId(member[:8]) for _, member, _ in found}
        )
        states = await self._records_of(shard, [member for _, member, _ in found])
        return [
            PointView(
                shard=shard,
                namespace=counts.namespace_of(lane),
                point=point,
                due_us=due,
                known=known.get(point.schedule_id),
                record=states.get(member),
            )
            for lane, member, due in found
            if (point := points.parse_member(member, due)) is not None
        ]

    async def _records_of(
        self, shard: messages.ShardId, members: Sequence[bytes]
    ) -> dict[bytes, messages.OccurrenceRecord]:
        occurrences = [member for member in members if len(member) > points.CHAIN_LENGTH]
        if not occurrences:
            return {}
        (found,) = await self.index.read(
            "look at the occurrences", ("HMGET", self.index.shard(shard).occrec, *occurrences)
        )
        known: dict[bytes, messages.OccurrenceRecord] = {}
        for member, record in zip(occurrences, found, strict=True):
            if record is not None:
                with contextlib.suppress(records.UnknownFormat):
                    known[member] = records.unpack(record)
        return known
