"""Reads single points: the next ones, and those of one schedule.

Uses only reading commands. The next points come from the lanes' heads and not from a walk. A
schedule is found by its uid at once; by its name alone, by a search through the definitions of its
namespace, up to a limit.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import lanes, reading, records
from duepoint.delayqueue.inspection import counts
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Most definitions of a namespace that are read to find one by its name.
NAMES_READ = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PointView:
    """One point of the queue.

    Attributes:
        due_us: None while a worker holds it: its due is in the claim then.
        known: its definition; None if there is none (any more).
        record: state of an occurrence.
    """

    shard: messages.ShardId
    namespace: str
    point: points.DuePoint
    due_us: int | None
    known: definitions.Definition | None
    record: messages.OccurrenceRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """One schedule as the queue knows it, and all its points."""

    shard: messages.ShardId
    known: definitions.Definition
    points: tuple[PointView, ...]
    now_us: int


@dataclass(eq=False)
class Upcoming:
    """Single points: the next ones, and those of one schedule."""

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
        return sorted(views, key=lambda view: view.due_us or 0)

    async def schedule_view(
        self, namespace: str, *, name: str | None = None, uid: str | None = None
    ) -> ScheduleView | None:
        """Return the schedule of this namespace with this uid or name; None = not in the queue.

        Raises TooManyDefinitions if a name is not among the first ``NAMES_READ`` definitions.
        """
        found = (
            await self._find_uid(namespace, uid)
            if uid is not None
            else await self._find_name(namespace, name or "")
        )
        return None if found is None else await self._schedule_view(*found)

    # -- points ------------------------------------------------------------------------------------

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
                # The score of a held point is its lease.
                due_us=due if due < points.DUE_LIMIT_US else None,
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

    # -- one schedule ------------------------------------------------------------------------------

    async def _find_uid(
        self, namespace: str, uid: str
    ) -> tuple[messages.ShardId, definitions.Definition] | None:
        schedule_id = points.schedule_id(uid, namespace)
        for shard in sharding.homes(schedule_id, self.index.known_layout()):
            known = (await self.reader.read_here(shard, [schedule_id])).get(schedule_id)
            if known is not None and known.uid == uid:
                return shard, known
        return None

    async def _find_name(
        self, namespace: str, name: str
    ) -> tuple[messages.ShardId, definitions.Definition] | None:
        text = name.encode()
        text = bytes([min(len(text), 255)]) + text  # as the record has it
        read = 0
        for shard in sharding.all_shards(self.index.known_layout()):
            async for found in self.reader.records(shard, [namespace]):
                read += len(found)
                for schedule_id in [one for one, record in found if text in record]:
                    known = await self.reader.definition(schedule_id)
                    if known and (known.namespace, known.name) == (namespace, name):
                        return shard, known
                if read > NAMES_READ:
                    raise queue_errors.TooManyDefinitions(
                        f"{namespace}/{name} is not among the first {NAMES_READ} schedules of its"
                        " namespace; name it by its uid (kubectl get schedule -o"
                        " jsonpath={.metadata.uid})"
                    )
        return None

    async def _schedule_view(
        self, shard: messages.ShardId, known: definitions.Definition
    ) -> ScheduleView:
        names = self.index.shard(shard)
        lane = lanes.of_schedule(known.namespace, known.owner)
        last = known.id + b"\xff" * 18
        time, occurrences = await self.index.read(
            "look at a schedule",
            ("TIME",),
            (
                "ZRANGE", names.occ, b"[" + known.id, b"[" + last, "BYLEX",
                "LIMIT", 0, 2 * messages.OPEN_RETRIES,
            ),
        )  # fmt: skip
        members = [known.id + known.timing_version, *occurrences]
        (scores,) = await self.index.read(
            "look at a schedule", ("ZMSCORE", names.lane(lane), *members)
        )
        there = [
            (lane, member, int(scripting.finite(score)))
            for member, score in zip(members, scores, strict=True)
            if score is not None
        ]
        described = await self._views(shard, there)
        described.sort(key=lambda view: view.due_us or 0)
        return ScheduleView(
            shard=shard, known=known, points=tuple(described), now_us=scripting.time_us(time)
        )
