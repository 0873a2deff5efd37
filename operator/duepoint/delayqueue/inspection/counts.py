"""Counts the contents of the index, for people and for metrics.

Uses only reading commands. The work stays bounded however large the index is: a shard's counts come
from the server's own counters, and if it has too many buckets, a sample is counted. The counts of a
queue in use are not exact: each shard is read at its own instant.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import lanes, reading
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: Shards that are read concurrently: more would only wait for one another in the server.
_SIDE_BY_SIDE = 8
#: Most buckets of a shard that are counted one by one; of more, a random sample is counted.
_BUCKETS_COUNTED = 2_000
_BUCKETS_SAMPLED = 500
#: Most occurrences per shard whose kind is read.
_KINDS_COUNTED = 2_000

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
class ShardView:
    """How full one shard is.

    Attributes:
        armed: chain points of Schedules and of members, claimed ones included.
        occurrences: slots that are points of their own, retries included.
        oldest_due_us: due of the oldest point that could be claimed; None if nothing is due.
        runs: outcomes that the status writer has not read yet.
        is_exact: False if ``definitions`` or ``retries`` are estimates.
    """

    shard: messages.ShardId
    state: str
    definitions: int
    armed: int
    occurrences: int
    retries: int
    due: int
    claimed: int
    claims: int
    oldest_due_us: int | None
    runs: int
    dead: int
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """The points of one namespace, or of a set of it, in one shard."""

    shard: messages.ShardId
    namespace: str
    points: int
    due: int
    claimed: int
    oldest_due_us: int | None


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


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of one shard.

    Attributes:
        fire: those of namespaces, and of sets that have points and are not suspended.
        held: those of the other sets, and of sets without points.
        namespaces: those whose definitions are counted.
    """

    fire: list[str]
    held: list[str]
    namespaces: list[str]


@dataclass(eq=False)
class Counts:
    """Counts the contents of the index."""

    index: index.Index
    reader: reading.DefinitionReader

    async def index_view(self) -> IndexView:
        """Return the state of the index; raises ``queue_errors.Uninitialised`` if there is none."""
        record, time, workers, troubles = await self.index.read(
            "look at the index",
            ("HMGET", self.index.keys.layout, "layout", "shards", "state", "epoch"),
            ("TIME",),
            ("ZRANGE", self.index.keys.workers, 0, -1, "WITHSCORES"),
            ("HGETALL", self.index.keys.troubles),
        )
        if record[0] is None:
            raise queue_errors.Uninitialised("there is no index yet: the operator makes it")
        now = scripting.time_us(time)
        nodes = await self.index.servers.everywhere([("INFO", "server"), ("INFO", "memory")])
        infos = [scripting.good(replies, "look at the servers") for replies in nodes]
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
        return await self.of_each_shard(self._shard_view)

    async def totals(self) -> Totals:
        """Return the totals of the whole index, cheaply enough for every few seconds."""
        found = await self.of_each_shard(self._totals_of_shard)
        return Totals(
            points=sum(each.points for each in found),
            due=sum(each.due for each in found),
            outcomes=sum(each.outcomes for each in found),
            dead=sum(each.dead for each in found),
            lag_us=max((each.lag_us for each in found), default=0),
            first_due_us=min(
                (each.first_due_us for each in found if each.first_due_us is not None), default=None
            ),
        )

    async def lane_views(self) -> list[LaneView]:
        """Return every namespace and set that has unclaimed points and may fire, by shard."""
        found = await self.of_each_shard(self._lanes_of_shard)
        return [view for views in found for view in views]

    async def of_namespace(self, namespace: str) -> list[LaneView]:
        """Return the points of Schedules of one namespace, shard by shard."""

        async def look(shard: messages.ShardId) -> list[LaneView]:
            lane = lanes.of_namespace(namespace)
            time, known = await self.index.read(
                "look at a namespace",
                ("TIME",),
                ("HGET", self.index.shard(shard).meta, lane),
            )
            return (
                []
                if known is None
                else await self._lane_counts(shard, [lane], scripting.time_us(time))
            )

        return [view for views in await self.of_each_shard(look) for view in views]

    # -- shards ------------------------------------------------------------------------------------

    async def of_each_shard(self, look: Callable[[messages.ShardId], Awaitable[T]]) -> list[T]:
        room = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def look_at(shard: messages.ShardId) -> T:
            async with room:
                return await look(shard)

        shards = sharding.all_shards(self.index.known_layout())
        return list(await asyncio.gather(*(look_at(shard) for shard in shards)))

    async def _shard_view(self, shard: messages.ShardId) -> ShardView:
        names = self.index.shard(shard)
        state, time, claims, occurrences, runs, logs, kinds = await self.index.read(
            "look at a shard",
            ("HGET", names.meta, "state"),
            ("TIME",),
            ("ZCARD", names.claims),
            ("ZCARD", names.occ),
            ("XLEN", names.runs),
            ("ZRANGE", names.logs, 0, -1),
            ("ZRANGE", names.occ, "-", "+", "BYLEX", "LIMIT", 0, _KINDS_COUNTED + 1),
        )
        known = await self._known_lanes(shard)
        views = await self._lane_counts(shard, known.fire, scripting.time_us(time))
        held = await self._points_in(shard, known.held)
        dead = await self.index.read_many("count dead letters", _lengths(names, logs))
        definitions_, all_counted = await self._count_definitions(shard, known.namespaces)
        occurrences = max(0, occurrences - 1)  # the sentinel
        retries = sum(1 for member in kinds if _kind_of(member) is points.PointKind.RETRY)
        if occurrences > _KINDS_COUNTED:
            retries = round(retries * occurrences / _KINDS_COUNTED)
        oldest = [view.oldest_due_us for view in views if view.oldest_due_us is not None]
        return ShardView(
            shard=shard,
            state=(state or b"empty").decode(errors="replace"),
            definitions=definitions_,
            armed=max(0, sum(view.points for view in views) + held - occurrences),
            occurrences=occurrences,
            retries=retries,
            due=sum(view.due for view in views),
            claimed=sum(view.claimed for view in views),
            claims=max(0, claims - 1),
            oldest_due_us=min(oldest, default=None),
            runs=runs,
            dead=sum(dead),
            is_exact=all_counted and occurrences <= _KINDS_COUNTED,
        )

    async def _totals_of_shard(self, shard: messages.ShardId) -> Totals:
        names = self.index.shard(shard)
        time, runs, logs, heads = await self.index.read(
            "count what waits",
            ("TIME",),
            ("XLEN", names.runs),
            ("ZRANGE", names.logs, 0, -1),
            ("ZRANGE", names.heads, 0, -1, "WITHSCORES"),
        )
        now = scripting.time_us(time)
        waiting = [(names.lane(lane), due) for lane, due in lanes_of(scripting.scored(heads))]
        letters = _lengths(names, logs)
        counts = await self.index.read_many(
            "count what waits",
            [
                *letters,
                *(("ZCOUNT", lane, "-inf", f"({points.DUE_LIMIT_US}") for lane, _ in waiting),
            ],
        )
        late = [lane for lane, due in waiting if due <= now]
        overdue = await self.index.read_many(
            "count what is due", [("ZCOUNT", lane, "-inf", now) for lane in late]
        )
        first_due_us = min((int(due) for _, due in waiting), default=None)
        return Totals(
            points=sum(counts[len(letters) :]),
            due=sum(overdue),
            outcomes=runs,
            dead=sum(counts[: len(letters)]),
            lag_us=0 if first_due_us is None else max(0, now - first_due_us),
            first_due_us=first_due_us,
        )

    async def _lanes_of_shard(self, shard: messages.ShardId) -> list[LaneView]:
        ((seconds, micros), heads) = await self.index.read(
            "look at the namespaces",
            ("TIME",),
            ("ZRANGE", self.index.shard(shard).heads, 0, -1, "WITHSCORES"),
        )
        with_points = [lane for lane, _ in lanes_of(scripting.scored(heads))]
        return await self._lane_counts(shard, with_points, scripting.time_us((seconds, micros)))

    async def _known_lanes(self, shard: messages.ShardId) -> _Lanes:
        (heads,) = await self.index.read(
            "look at the namespaces", ("ZRANGE", self.index.shard(shard).heads, 0, -1)
        )
        known = await self.reader.lanes(shard)
        of_sets = set(filter(lanes.is_of_set, known))
        open_sets = {head.decode() for head in heads if lanes.is_lane(head)} & of_sets
        own = [lane for lane in known if lane not in of_sets]
        namespaces = [lanes.parse(lane)[0] for lane in own]
        return _Lanes([*own, *open_sets], list(of_sets - open_sets), namespaces)

    async def _lane_counts(
        self, shard: messages.ShardId, listed: Sequence[str], now_us: int
    ) -> list[LaneView]:
        names = self.index.shard(shard)
        commands: list[tuple[Any, ...]] = []
        for lane in listed:
            key = names.lane(lane)
            commands += [
                ("ZCOUNT", key, "-inf", "(+inf"),
                ("ZCOUNT", key, "-inf", now_us),
                ("ZCOUNT", key, points.DUE_LIMIT_US, "(+inf"),
                ("ZRANGE", key, 0, 0, "WITHSCORES"),
            ]
        replies = await self.index.read_many("count the points", commands)
        counted = []
        for number, lane in enumerate(listed):
            total, due, claimed, first = replies[4 * number : 4 * number + 4]
            oldest = next((int(score) for member, score in scripting.scored(first) if member), None)
            counted.append(
                LaneView(
                    shard=shard,
                    namespace=namespace_of(lane),
                    points=total,
                    due=due,
                    claimed=claimed,
                    oldest_due_us=oldest if oldest is not None and oldest <= now_us else None,
                )
            )
        return counted

    async def _points_in(self, shard: messages.ShardId, set_lanes: Sequence[str]) -> int:
        """Return the number of members' points; their occurrences count among all others."""
        names = self.index.shard(shard)
        counts = await self.index.read_many(
            "count the points of sets",
            [("ZCOUNT", names.lane(lane), "-inf", "(+inf") for lane in set_lanes],
        )
        return sum(counts)

    async def _count_definitions(
        self, shard: messages.ShardId, namespaces: Iterable[str]
    ) -> tuple[int, bool]:
        """Return how many definitions a shard has, and whether all buckets were counted."""
        buckets = self.index.buckets_of(shard, namespaces)
        chosen = buckets
        if len(buckets) > _BUCKETS_COUNTED:
            chosen = random.sample(buckets, _BUCKETS_SAMPLED)
        counts = await self.index.read_many(
            "count the definitions", [("HLEN", each) for each in chosen]
        )
        if len(chosen) == len(buckets):
            return sum(counts), True
        return round(sum(counts) * len(buckets) / len(chosen)), False


def namespace_of(lane: str) -> str:
    """Return the namespace of a lane, even if its name is not ours."""
    try:
        return lanes.parse(lane)[0]
    except ValueError:
        return ""


def _lengths(names: keys.ShardKeys, logs: Iterable[bytes]) -> list[tuple[Any, ...]]:
    """Return the commands that count the dead letters of these lanes."""
    return [("XLEN", names.log(lane.decode(errors="replace"))) for lane in logs]


def _kind_of(member: bytes) -> points.PointKind | None:
    point = points.parse_member(member, 0)
    return None if point is None else point.kind


def lanes_of(heads: Iterable[tuple[bytes, float]]) -> list[tuple[str, float]]:
    """Return the heads that name lanes, with their dues."""
    return [(lane.decode(errors="replace"), due) for lane, due in heads if lanes.is_lane(lane)]


def _server_name(info: dict[str, Any]) -> str:
    for name in ("valkey", "redis"):
        if version := info.get(f"{name}_version"):
            return f"{name} {version}"
    return "unknown"


def _sum_of(infos: Iterable[dict[str, Any]], name: str) -> int:
    return sum(int(info.get(name, 0)) for info in infos)
