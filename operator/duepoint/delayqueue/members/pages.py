"""Reads the members of a set page by page: in the order of the hashes of their ids, or of dues.

A cursor names a position in one list of one set in one layout: one that belongs to another list or
set, or was made before the index was resharded, is refused. Reading changes nothing, and a page
takes a bounded amount of work. While the index is resharded, a walk goes through the former shards
first: it misses no member, and may return one twice.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import lanes
from duepoint.delayqueue.members import lookups, values
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

#: Buckets of one script, most of them of some fifty members, and scripts of one page.
_BUCKETS_TOGETHER = 512
_STEPS = 16


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """A position in a list, which a cursor names.

    Attributes:
        owner: uid of the set.
        layout: number of the layout.
    """

    owner: str
    layout: int


class _Walked(_Place, frozen=True, array_like=True, tag="walk"):
    """How far a walk has come: whole shards, whole buckets of the next one, ids of the next."""

    shard: int
    bucket: int = 0
    after: bytes = b""


class _Due(_Place, frozen=True, array_like=True, tag="due"):
    """The last point returned: points are in the order of dues, and of shards within a due."""

    due_us: int
    shard: messages.ShardId
    member: bytes


PlaceT = TypeVar("PlaceT", bound=_Place)

#: Points of a lane with their dues, and whether there may be more.
_DuePoints = tuple[list[tuple[int, bytes]], bool]


@dataclass(eq=False)
class MemberPages:
    """Reads pages of a set's members: of all, or of those that are due."""

    index: index.Index
    layouts: layouts.Layouts
    lookups: lookups.MemberLookups

    async def page(
        self, set_: setrecord.SetRecord, cursor: str = "", *, limit: int, prefix: str = ""
    ) -> values.MemberPage:
        """Return some members, shard by shard, in the order of the hashes of their ids.

        A member that does not change meanwhile comes once in a walk.
        The work is bounded: there may be fewer than ``limit``, even none, and still more to come:
        the page has a cursor then. Raises InvalidCursor.
        """
        owner = set_.identity
        at = await self._parsed(owner, _Walked, cursor)
        layout = self.index.known_layout()
        members: list[values.StoredMember] = []
        next_at: _Walked | None = at or _Walked(owner.uid, layout.number, 0)
        for _ in range(_STEPS):
            if next_at is None or len(members) >= limit:
                break
            some, next_at = await self._step(
                owner, layout, next_at, limit=limit - len(members), prefix=prefix
            )
            members += some
        return values.MemberPage(members=members, cursor=_cursor(next_at))

    async def _step(
        self,
        owner: points.SetIdentity,
        layout: messages.Layout,
        at: _Walked,
        *,
        limit: int,
        prefix: str,
    ) -> tuple[list[values.StoredMember], _Walked | None]:
        """Return the members of some buckets, and the next position; None = this was the end."""
        shards = sharding.all_shards(layout)
        if at.shard >= len(shards):
            return [], None
        shard = shards[at.shard]
        next_shard = _Walked(at.owner, at.layout, at.shard + 1)
        buckets = buckets_of(self.index, owner, shard)
        chunk = buckets.some(at.bucket, _BUCKETS_TOGETHER)
        if not chunk:
            return [], next_shard
        call = self.index.call("listmembers", shard, *chunk, most=limit + 1)
        call.put(prefix=prefix.encode())
        try:
            looked_at, replies = await self.index.scripts.run(call)
        except queue_errors.LayoutChanged:
            if sharding.layout_of(shard) == layout.number:
                raise
            return [], next_shard  # a former shard that is closed by now
        next_at = _Walked(at.owner, at.layout, at.shard, at.bucket + looked_at)
        if next_at.bucket >= len(buckets):
            next_at = next_shard
        listed: list[tuple[points.ScheduleId, bytes]] = []
        for offset, reply in enumerate(replies):
            here = sorted(zip(reply[::2], reply[1::2], strict=True))
            if offset == 0:
                here = [each for each in here if each[0] > at.after]
            room = limit - len(listed)
            listed += here[:room]
            if len(here) > room:
                after = here[room - 1][0] if room else b""
                next_at = _Walked(at.owner, at.layout, at.shard, at.bucket + offset, after)
                break
        found = await self.lookups.of_records(owner, {shard: listed})
        kept = [one for one in found if one.id.startswith(prefix)]
        return kept, next_at

    async def due(
        self,
        set_: setrecord.SetRecord,
        since_us: int,
        until_us: int,
        *,
        limit: int,
        cursor: str = "",
    ) -> values.MemberPage:
        """Return members whose chain is due in [since, until), by due; none that a worker holds.

        Raises InvalidCursor.
        """
        owner = set_.identity
        behind = await self._parsed(owner, _Due, cursor)
        if behind is not None and behind.due_us < since_us:
            behind = None  # of an earlier window: this one is read from its beginning
        last_us = min(until_us, points.DUE_LIMIT_US)
        read = await self._due_points(lanes.of_set(owner), since_us, last_us, limit + 1, behind)
        #: The place that every shard was read to.
        horizon: tuple[int, messages.ShardId, bytes] | None = None
        listed: list[tuple[int, messages.ShardId, bytes]] = []
        for shard, (scored, is_cut) in read.items():
            listed += [(due_us, shard, member) for due_us, member in scored]
            if is_cut:
                end = (scored[-1][0], shard, scored[-1][1])
                horizon = end if horizon is None else min(horizon, end)
        window = sorted(each for each in listed if horizon is None or each <= horizon)
        chains = [each for each in window if len(each[2]) == points.CHAIN_LENGTH]
        chosen = chains[:limit]
        last = chosen[-1] if len(chains) > limit else horizon
        found = await self.lookups.of_points(
            owner, [(member, shard) for _, shard, member in chosen]
        )
        number = self.index.known_layout().number
        following = None if last is None else _Due(owner.uid, number, *last)
        ordered = sorted(found, key=lambda one: (one.due_us or 0, one.id))
        return values.MemberPage(members=ordered, cursor=_cursor(following))

    async def _due_points(
        self,
        lane: str,
        since_us: int,
        last_us: int,
        most: int,
        behind: _Due | None,
    ) -> dict[messages.ShardId, _DuePoints]:
        """Return the next points of each shard, at most ``most``, that were not returned yet."""
        shards = sharding.all_shards(self.index.known_layout())
        passed = 0
        if behind is not None and behind.shard in shards:
            passed = await self._passed(self.index.shard(behind.shard).lane(lane), behind)
        commands = []
        for shard in shards:
            first: object = since_us
            if behind is not None:
                first = f"({behind.due_us}" if shard < behind.shard else behind.due_us
            offset = passed if behind is not None and shard == behind.shard else 0
            key = self.index.shard(shard).lane(lane)
            limits = ("LIMIT", offset, most, "WITHSCORES")
            commands.append(("ZRANGE", key, first, f"({last_us}", "BYSCORE", *limits))
        replies = await self.index.read_many("read what is due", commands)
        found: dict[messages.ShardId, _DuePoints] = {}
        for shard, reply in zip(shards, replies, strict=True):
            scored = [(int(score), member) for member, score in scripting.scored(reply)]
            found[shard] = scored, len(scored) == most
        return found

    async def _passed(self, lane: str, behind: _Due) -> int:
        """Return how many points of this due in a lane were on earlier pages."""
        low, high = await self.index.read(
            "read what is due",
            ("ZCOUNT", lane, "-inf", f"({behind.due_us}"),
            ("ZCOUNT", lane, "-inf", behind.due_us),
        )
        first = low
        # Points of one due are in the order of their bytes, so a binary search finds the position.
        while low < high:
            middle = (low + high) // 2
            (reply,) = await self.index.read("read what is due", ("ZRANGE", lane, middle, middle))
            if reply and reply[0] <= behind.member:
                low = middle + 1
            else:
                high = middle
        return int(low - first)

    async def _parsed(
        self, owner: points.SetIdentity, kind: type[PlaceT], cursor: str
    ) -> PlaceT | None:
        """Return the position that a cursor names; None if it is empty. Raises InvalidCursor."""
        if not cursor:
            return None
        try:
            data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            place = msgspec.msgpack.decode(data, type=kind)
        except (ValueError, msgspec.MsgspecError):
            place = None
        if place is None or place.owner != owner.uid:
            raise queue_errors.InvalidCursor(
                "the cursor was not given for this list; begin again without one"
            )
        if place.layout != self.index.known_layout().number:
            layout = await self.layouts.read()
            if place.layout != layout.number:
                raise queue_errors.InvalidCursor(
                    "the index was resharded since that cursor was given; begin again without one"
                )
        return place


def _cursor(place: _Place | None) -> str:
    """Return the cursor for a position; empty = the end."""
    if place is None:
        return ""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).rstrip(b"=").decode()


def buckets_of(
    index_: index.Index, owner: points.SetIdentity, shard: messages.ShardId
) -> keys.SetBuckets:
    """Return every bucket of a shard that may hold members of the set."""
    number, shards = sharding.index_of(shard), index_.shards_beside(shard)
    populations = keys.set_populations(owner.uid, owner.spread, number, shards)
    return keys.SetBuckets(index_.shard(shard), populations, index_.buckets)
