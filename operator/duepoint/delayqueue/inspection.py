"""Reads the index for people and metrics: counts of its contents, and the points that come next.

Uses only reading commands. The work stays bounded however large the index is: all counts come from
the server's own counters, and the next points from the lanes' heads. Counts of a queue in use
are not exact: each shard is read at its own instant.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.definitions import lanes, reading, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Shards that are read concurrently: more would only wait for one another in the server.
_SIDE_BY_SIDE = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexView:
    """The state of the whole index.

    Attributes:
        state: ``stable``, or the state of a resharding.
        workers: the living ones, and until when each counts as alive.
        troubles: the troubles that living workers report, by name.
        memory_limit: 0 = none.
    """

    layout: messages.Layout
    state: str
    epoch: int
    now_us: int
    server: str
    workers: tuple[tuple[str, int], ...]
    troubles: tuple[tuple[str, str], ...]
    memory_used: int
    memory_resident: int
    memory_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """The points of one namespace, or of a set of it, in one shard.

    Attributes:
        points: claimed ones included.
        first_due_us: due of the first point that may fire; None if none waits, or its set is
            suspended.
    """

    namespace: str
    points: int
    due: int
    claimed: int
    first_due_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """How full one shard is.

    Attributes:
        occurrences: slots that are points of their own, retries included.
        runs: outcomes that the status writer has not read yet.
    """

    shard: messages.ShardId
    state: str
    now_us: int
    lanes: tuple[LaneView, ...]
    occurrences: int
    claims: int
    runs: int
    dead: int

    @property
    def armed(self) -> int:
        """Chain points of Schedules and of members, claimed ones included."""
        return max(0, sum(lane.points for lane in self.lanes) - self.occurrences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How full the whole index is.

    Attributes:
        points: waiting points, without those that a worker holds.
        lag_us: how long the oldest of them has been due; 0 if none is.
        first_due_us: when that one is or was due; None if there is none.
    """

    points: int
    due: int
    outcomes: int
    dead: int
    lag_us: int
    first_due_us: int | None


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
    known: definitions.Definition | None
    record: messages.OccurrenceRecord | None = None


@dataclass(eq=False)
class Inspection:
    """Reads the contents of the index."""

    index: index.Index
    reader: reading.DefinitionReader

    async def index_view(self) -> IndexView:
        """Return the state of the index; raises ``queue_errors.Uninitialised`` if there is none."""
        record, time, workers, troubles = await self.index.read(
            "read the index",
            ("HMGET", self.index.keys.layout, "layout", "shards", "state", "epoch"),
            ("TIME",),
            ("ZRANGE", self.index.keys.workers, 0, -1, "WITHSCORES"),
            ("HGETALL", self.index.keys.troubles),
        )
        if record[0] is None:
            raise queue_errors.Uninitialised("the index does not exist; the operator creates it")
        now = scripting.time_us(time)
        nodes = await self.index.servers.everywhere([("INFO", "server"), ("INFO", "memory")])
        infos = [scripting.good(replies, "read the state of the servers") for replies in nodes]
        memories = [memory for _, memory in infos]
        alive = [(name, int(until)) for name, until in scripting.scored(workers) if until > now]
        living = {name for name, _ in alive}
        return IndexView(
            layout=messages.Layout(number=int(record[0]), shards=int(record[1])),
            state=(record[2] or b"stable").decode(errors="replace"),
            epoch=layouts.number_of(record[3]),
            now_us=now,
            server=_server_name(infos[0][0]),
            workers=tuple((name.decode(errors="replace"), until) for name, until in alive),
            troubles=tuple(
                (name.decode(errors="replace"), text.decode(errors="replace"))
                for name, text in sorted(troubles.items())
                if name in living
            ),
            memory_used=_sum_of(memories, "used_memory"),
            memory_resident=_sum_of(memories, "used_memory_rss"),
            memory_limit=_sum_of(memories, "maxmemory"),
        )

    async def shard_views(self) -> list[ShardView]:
        """Return every shard with all of its lanes."""

        async def look(shard: messages.ShardId) -> ShardView:
            return await self._view(shard, await self.reader.lanes(shard))

        return await self._of_each_shard(look)

    async def waiting(self) -> list[ShardView]:
        """Return every shard with the lanes that have points which may fire."""
        return await self._of_each_shard(self._view)

    async def totals(self) -> Totals:
        """Return the totals of the whole index, cheaply enough for every few seconds."""
        views = await self.waiting()
        lanes_ = [lane for view in views for lane in view.lanes]
        first_us = min(
            (one.first_due_us for one in lanes_ if one.first_due_us is not None), default=None
        )
        now_us = max((view.now_us for view in views), default=0)
        return Totals(
            points=sum(lane.points - lane.claimed for lane in lanes_),
            due=sum(lane.due for lane in lanes_),
            outcomes=sum(view.runs for view in views),
            dead=sum(view.dead for view in views),
            lag_us=0 if first_us is None else max(0, now_us - first_us),
            first_due_us=first_us,
        )

    async def of_namespace(self, namespace: str) -> list[LaneView]:
        """Return the points of Schedules of one namespace, shard by shard."""
        lane = [lanes.of_namespace(namespace)]
        views = await self._of_each_shard(lambda shard: self._view(shard, lane))
        return [lane for view in views for lane in view.lanes]

    async def _of_each_shard(self, look: Callable[[messages.ShardId], Awaitable[T]]) -> list[T]:
        room = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def look_at(shard: messages.ShardId) -> T:
            async with room:
                return await look(shard)

        shards = sharding.all_shards(self.index.known_layout())
        return list(await asyncio.gather(*(look_at(shard) for shard in shards)))

    async def _view(
        self, shard: messages.ShardId, listed: Sequence[str] | None = None
    ) -> ShardView:
        """Return the shard with these lanes, or with those that have points which may fire."""
        names = self.index.shard(shard)
        state, time, claims, occurrences, runs, logs, heads = await self.index.read(
            "read a shard",
            ("HGET", names.meta, "state"),
            ("TIME",),
            ("ZCARD", names.claims),
            ("ZCARD", names.occ),
            ("XLEN", names.runs),
            ("ZRANGE", names.logs, 0, -1),
            ("ZRANGE", names.heads, 0, -1, "WITHSCORES"),
        )
        now_us = scripting.time_us(time)
        first_of = {lane: int(due) for lane, due in _lanes_of(scripting.scored(heads))}
        found = list(first_of) if listed is None else listed
        late = [lane for lane in found if first_of.get(lane, now_us + 1) <= now_us]
        counts = await self.index.read_many(
            "count points and dead letters",
            [
                *(("ZCOUNT", names.lane(lane), "-inf", "(+inf") for lane in found),
                *(("ZCOUNT", names.lane(lane), points.DUE_LIMIT_US, "(+inf") for lane in found),
                *(("ZCOUNT", names.lane(lane), "-inf", now_us) for lane in late),
                *(("XLEN", names.log(lane.decode(errors="replace"))) for lane in logs),
            ],
        )
        of_lanes, claimed = counts[: len(found)], counts[len(found) : 2 * len(found)]
        due_of = dict(zip(late, counts[2 * len(found) :], strict=False))
        return ShardView(
            shard=shard,
            state=(state or b"empty").decode(errors="replace"),
            now_us=now_us,
            lanes=tuple(
                LaneView(
                    namespace=_namespace_of(lane),
                    points=all_,
                    due=due_of.get(lane, 0),
                    claimed=held,
                    first_due_us=first_of.get(lane),
                )
                for lane, all_, held in zip(found, of_lanes, claimed, strict=True)
            ),
            occurrences=max(0, occurrences - 1),  # the sentinel
            claims=max(0, claims - 1),
            runs=runs,
            dead=sum(counts[2 * len(found) + len(late) :]),
        )

    async def next_points(self, count: int, *, namespace: str | None = None) -> list[PointView]:
        """Return the ``count`` points that are due first, of those that no worker holds."""
        shards = sharding.all_shards(self.index.known_layout())
        first = [(shard, lanes.of_namespace(namespace or "")) for shard in shards]
        if namespace is None:
            replies = await self.index.read_many(
                "read the heads",
                [
                    ("ZRANGE", self.index.shard(shard).heads, 0, count, "WITHSCORES")
                    for shard in shards
                ],
            )
            heads = (
                (due, shard, lane)
                for shard, found in zip(shards, replies, strict=True)
                for lane, due in _lanes_of(scripting.scored(found))
            )
            # Each lane's first point is its head: the first points are in as many lanes.
            first = [(shard, lane) for _, shard, lane in heapq.nsmallest(count, heads)]
        replies = await self.index.read_many(
            "read the next points",
            [
                (
                    *("ZRANGE", self.index.shard(shard).lane(lane)),
                    *("-inf", f"({points.DUE_LIMIT_US}", "BYSCORE", "LIMIT", 0, count),
                    "WITHSCORES",
                )
                for shard, lane in first
            ],
        )
        listed = (
            (due, shard, lane, member)
            for (shard, lane), found in zip(first, replies, strict=True)
            for member, due in scripting.scored(found)
        )
        by_shard: dict[messages.ShardId, list[tuple[str, bytes, int]]] = {}
        for due, shard, lane, member in heapq.nsmallest(count, listed):
            by_shard.setdefault(shard, []).append((lane, member, int(due)))
        views = [
            view for shard, some in by_shard.items() for view in await self._views(shard, some)
        ]
        return sorted(views, key=lambda view: view.point.due_us)

    async def _views(
        self, shard: messages.ShardId, found: Sequence[tuple[str, bytes, int]]
    ) -> list[PointView]:
        """Return the points with these lanes, members and scores."""
        members = [member for _, member, _ in found]
        known = await self.reader.read_definitions(
            shard, {points.ScheduleId(member[:8]) for member in members}
        )
        (states,) = await self.index.read(
            "read occurrences", ("HMGET", self.index.shard(shard).occrec, *members)
        )
        return [
            PointView(
                shard=shard,
                namespace=_namespace_of(lane),
                point=point,
                known=known.get(point.schedule_id),
                record=records.unpack_or_first(state) if state else None,
            )
            for (lane, member, due), state in zip(found, states, strict=True)
            if (point := points.parse_member(member, due)) is not None
        ]


def _namespace_of(lane: str) -> str:
    """Return the namespace of a lane, even if its name is not ours."""
    try:
        return lanes.parse(lane)[0]
    except ValueError:
        return ""


def _lanes_of(heads: Iterable[tuple[bytes, float]]) -> list[tuple[str, float]]:
    """Return the heads that name lanes, with their dues."""
    return [(lane.decode(errors="replace"), due) for lane, due in heads if lanes.is_lane(lane)]


def _server_name(info: dict[str, Any]) -> str:
    for name in ("valkey", "redis"):
        if version := info.get(f"{name}_version"):
            return f"{name} {version}"
    return "unknown"


def _sum_of(infos: Iterable[dict[str, Any]], name: str) -> int:
    return sum(int(info.get(name, 0)) for info in infos)
