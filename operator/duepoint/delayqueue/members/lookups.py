"""Reading members of a set: some of them by id, all of them page by page, or by their due.

Nothing is changed, and every call does a bounded amount of work. While the index is resharded a
member is looked for in its former shard first, and in the new one where it is not there; a walk
goes through the former shards first, so that it misses nothing and may meet a member twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import structlog

from duepoint import telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, interning, reading, records, signedblobs
from duepoint.delayqueue.members import cursors, lanes, values
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points
from duepoint.schedules.sets import identity as setidentity
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

_ROUNDS = 4
#: Buckets of one script, most of them of some fifty members, and scripts of one page.
_BUCKETS_TOGETHER = 512
_STEPS = 16


class _Walked(msgspec.Struct, frozen=True, array_like=True):
    """How far a walk has come: whole shards, whole buckets of the next one, ids of the next."""

    layout: int
    shard: int
    bucket: int = 0
    after: bytes = b""


class _Due(msgspec.Struct, frozen=True, array_like=True):
    """The last point that is behind: points are in the order of dues, and of shards within one."""

    layout: int
    due_us: int
    shard: messages.ShardId
    member: bytes


#: Points of a lane with their dues, and whether there may be more.
_DuePoints = tuple[list[tuple[int, bytes]], bool]


class _Found(NamedTuple):
    """A stored member and what its record names by number."""

    id: points.ScheduleId
    packed: codec.Packed


@dataclass(eq=False)
class MemberReader:
    """Looks at members; nothing is changed."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    lanes: lanes.SetLanes
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs

    # -- by id -----------------------------------------------------------------------------------

    async def get(
        self, set_: setrecord.SetRecord, ids: Sequence[str]
    ) -> list[values.StoredMember | None]:
        """The members of these ids, in their order; None = there is none."""
        owner = set_.identity
        by_id = {points.member_id(owner, name): name for name in ids}
        found: dict[str, values.StoredMember] = {}
        for _ in range(_ROUNDS):
            layout = self.index.known_layout()
            try:
                for each in filter(None, (layout.former, layout)):
                    left = [key for key, name in by_id.items() if name not in found]
                    found.update(await self._get_in(each, owner, left))
            except queue_errors.LayoutChanged:
                await self.layouts.read()
                continue
            if len(found) == len(by_id) or await self.layouts.read() == layout:
                return [found.get(name) for name in ids]
        raise queue_errors.LayoutChanged("the index is resharded faster than it can be read")

    async def _get_in(
        self,
        layout: messages.Layout,
        owner: setidentity.SetIdentity,
        ids: Sequence[points.ScheduleId],
    ) -> dict[str, values.StoredMember]:
        by_shard: dict[messages.ShardId, list[points.ScheduleId]] = {}
        for member_id in ids:
            by_shard.setdefault(sharding.home(member_id, layout), []).append(member_id)
        numbers = await self._lanes_in(layout, by_shard, owner)
        records_of = await self._records({shard: by_shard[shard] for shard in numbers})
        found = await self._members(numbers, records_of)
        return {member.id: member for member in found}

    async def _records(
        self, ids_of: Mapping[messages.ShardId, Sequence[points.ScheduleId]]
    ) -> dict[messages.ShardId, list[tuple[points.ScheduleId, bytes]]]:
        """What is stored under these ids, by shard; without those under which nothing is."""
        wanted = [
            (shard, bucket, listed)
            for shard, ids in ids_of.items()
            for bucket, listed in self.reader.by_bucket(shard, ids).items()
        ]
        replies = await self.index.read_many(
            "read members", [("HMGET", bucket, *listed) for _, bucket, listed in wanted]
        )
        records_of: dict[messages.ShardId, list[tuple[points.ScheduleId, bytes]]] = {}
        for (shard, _, listed), reply in zip(wanted, replies, strict=True):
            records_of.setdefault(shard, []).extend(
                (member_id, record)
                for member_id, record in zip(listed, reply, strict=True)
                if record is not None
            )
        return records_of

    async def _lanes_in(
        self,
        layout: messages.Layout,
        shards: Iterable[messages.ShardId],
        owner: setidentity.SetIdentity,
    ) -> dict[messages.ShardId, int]:
        """The set's number in those shards; a former one may be closed and has none then."""
        try:
            return await self.lanes.of(shards, owner)
        except queue_errors.LayoutChanged:
            if layout.number == self.index.known_layout().number:
                raise
            return {}

    async def _members(
        self,
        numbers: Mapping[messages.ShardId, int],
        records_of: Mapping[messages.ShardId, Sequence[tuple[points.ScheduleId, bytes]]],
    ) -> list[values.StoredMember]:
        """The members of the set among these records, with the dues of their chains."""
        found: dict[messages.ShardId, list[_Found]] = {}
        for shard, listed in records_of.items():
            found[shard] = [
                _Found(member_id, packed)
                for member_id, packed in reading.unpacked(listed).items()
                if packed.namespace == numbers[shard]
            ]
        asked = [shard for shard, listed in found.items() if listed]
        replies = await self.index.read_many(
            "read the dues of members",
            [
                (
                    "ZMSCORE",
                    self.index.shard(shard).lane(numbers[shard]),
                    *(one.id + one.packed.timing_version for one in found[shard]),
                )
                for shard in asked
            ],
        )
        members: list[values.StoredMember] = []
        for shard, scores in zip(asked, replies, strict=True):
            rules = {one.packed.rule for one in found[shard] if isinstance(one.packed.rule, int)}
            await self.reader.learn_numbers(shard, rules)
            for one, score in zip(found[shard], scores, strict=True):
                member = self._member(shard, one, score)
                if member is not None:
                    members.append(member)
        return members

    def _member(
        self, shard: messages.ShardId, found: _Found, score: float | bytes | None
    ) -> values.StoredMember | None:
        packed = found.packed
        try:
            rule = reading.parsed_rule(
                packed.rule
                if isinstance(packed.rule, bytes)
                else self.reader.text(shard, packed.rule)
            )
        except (msgspec.DecodeError, *reading.TEXT_TROUBLES):
            telemetry.unreadable_total.labels("rule").inc()
            log.exception("rule of a member cannot be read", schedule_id=found.id.hex())
            return None
        due = None if score is None else int(float(score))
        claimed = due is not None and due >= points.DUE_LIMIT_US
        return values.StoredMember(
            id=packed.name,
            tag=packed.fingerprint.hex(),
            uid=packed.uid,
            rule=rule,
            at_us=packed.once_us,
            payload=packed.payload,
            state=packed.state,
            created_us=packed.created_us,
            due_us=None if claimed else due,
            claimed=claimed,
        )

    # -- page by page ----------------------------------------------------------------------------

    async def page(
        self, set_: setrecord.SetRecord, cursor: str = "", *, limit: int, prefix: str = ""
    ) -> values.MemberPage:
        """Some members, in the order of the hashes of their ids.

        Bounded work: there may be fewer than ``limit``, even none, and still more to come, which
        the cursor of the page says. Raises InvalidCursor.
        """
        owner = set_.identity
        at = cursors.parse(self.signed_blobs, owner, _Walked, cursor) if cursor else None
        layout = await self._layout_of(at)
        members: list[values.StoredMember] = []
        next_at: _Walked | None = at or _Walked(layout.number, 0)
        for _ in range(_STEPS):
            if next_at is None or len(members) >= limit:
                break
            some, next_at = await self._step(
                owner, layout, next_at, limit=limit - len(members), prefix=prefix
            )
            members += some
        text = "" if next_at is None else cursors.text(self.signed_blobs, owner, next_at)
        return values.MemberPage(members=members, cursor=text)

    async def _layout_of(self, place: _Walked | _Due | None) -> messages.Layout:
        """The layout in which a walk goes on; raises InvalidCursor where it is another one."""
        layout = self.index.known_layout()
        if place is None or place.layout == layout.number:
            return layout
        layout = await self.layouts.read()
        if place.layout != layout.number:
            raise values.InvalidCursor(
                "the index was resharded since that cursor was given; begin again without one"
            )
        return layout

    async def _step(
        self,
        owner: setidentity.SetIdentity,
        layout: messages.Layout,
        at: _Walked,
        *,
        limit: int,
        prefix: str,
    ) -> tuple[list[values.StoredMember], _Walked | None]:
        """The members of some buckets, and where to go on; None = this was the end."""
        shards = sharding.all_shards(layout)
        if at.shard >= len(shards):
            return [], None
        shard = shards[at.shard]
        next_shard = _Walked(at.layout, at.shard + 1)
        of_shard = layout if sharding.layout_of(shard) == layout.number else layout.former
        assert of_shard is not None  # noqa: S101 - all_shards has no other ones
        buckets = self.buckets(owner, shard, of_shard.shards)
        chunk = buckets.some(at.bucket, _BUCKETS_TOGETHER)
        numbers = await self._lanes_in(of_shard, [shard], owner) if chunk else {}
        if not numbers:
            return [], next_shard
        call = self.index.call("listmembers", shard, *chunk, most=limit + 1)
        call.put(prefix=prefix.encode())
        incarnation, looked_at, replies = await self.index.scripts.run(call)
        self.interned.see(shard, incarnation.decode())
        next_at = _Walked(at.layout, at.shard, at.bucket + looked_at)
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
                next_at = _Walked(at.layout, at.shard, at.bucket + offset, after)
                break
        found = await self._members(numbers, {shard: listed})
        kept = [one for one in found if one.id.startswith(prefix)]
        return kept, next_at

    def buckets(
        self, owner: setidentity.SetIdentity, shard: messages.ShardId, shards: int
    ) -> keys.SetBuckets:
        """Every bucket of a shard that may hold members of the set."""
        populations = keys.set_populations(
            owner.uid, owner.spread, sharding.index_of(shard), shards
        )
        return keys.SetBuckets(self.index.shard(shard), populations, self.index.buckets)

    # -- by due ----------------------------------------------------------------------------------

    async def due(
        self,
        set_: setrecord.SetRecord,
        since_us: int,
        until_us: int,
        *,
        limit: int,
        cursor: str = "",
    ) -> values.MemberPage:
        """Members whose chain is due in [since, until), by due; none that a worker holds.

        Raises InvalidCursor.
        """
        owner = set_.identity
        behind = cursors.parse(self.signed_blobs, owner, _Due, cursor) if cursor else None
        layout = await self._layout_of(behind)
        numbers = await self._all_lanes(owner)
        last_us = min(until_us, points.DUE_LIMIT_US)
        read = await self._due_points(numbers, since_us, last_us, limit + 1, behind)
        #: The place up to which every shard was read.
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
        found = await self._of_points(numbers, [(member, shard) for _, shard, member in chosen])
        next_cursor = ""
        if last is not None:
            next_cursor = cursors.text(self.signed_blobs, owner, _Due(layout.number, *last))
        ordered = sorted(found, key=lambda one: (one.due_us or 0, one.id))
        return values.MemberPage(members=ordered, cursor=next_cursor)

    async def _due_points(
        self,
        numbers: Mapping[messages.ShardId, int],
        since_us: int,
        last_us: int,
        most: int,
        behind: _Due | None,
    ) -> dict[messages.ShardId, _DuePoints]:
        """The next points of each shard, at most so many, that are not behind."""
        asked = [shard for shard in numbers if behind is None or shard != behind.shard]
        replies = await self.index.read_many(
            "read what is due",
            [
                (
                    *("ZRANGE", self.index.shard(shard).lane(numbers[shard])),
                    *(_first_due(shard, since_us, behind), f"({last_us}", "BYSCORE"),
                    *("LIMIT", 0, most, "WITHSCORES"),
                )
                for shard in asked
            ],
        )
        found: dict[messages.ShardId, _DuePoints] = {}
        for shard, reply in zip(asked, replies, strict=True):
            scored = [(int(score), member) for member, score in scripting.scored(reply)]
            found[shard] = scored, len(scored) == most
        if behind is not None and behind.shard in numbers:
            lane = self.index.shard(behind.shard).lane(numbers[behind.shard])
            found[behind.shard] = await self._after(lane, behind, last_us, most)
        return found

    async def _after(self, lane: str, behind: _Due, last_us: int, most: int) -> _DuePoints:
        """The next points of a lane behind this one, and whether there may be more."""
        low, high = await self.index.read(
            "read what is due",
            ("ZCOUNT", lane, "-inf", f"({behind.due_us}"),
            ("ZCOUNT", lane, "-inf", behind.due_us),
        )
        # Points of one due are in the order of their bytes, so a search by halves finds the place.
        while low < high:
            middle = (low + high) // 2
            (reply,) = await self.index.read("read what is due", ("ZRANGE", lane, middle, middle))
            if reply and reply[0] <= behind.member:
                low = middle + 1
            else:
                high = middle
        (reply,) = await self.index.read(
            "read what is due", ("ZRANGE", lane, low, low + most - 1, "WITHSCORES")
        )
        scored = [(int(score), member) for member, score in scripting.scored(reply)]
        found = [
            each for each in scored if (behind.due_us, behind.member) < each and each[0] < last_us
        ]
        is_cut = bool(found) and len(scored) == most and scored[-1][0] < last_us
        return found, is_cut

    async def _of_points(
        self,
        numbers: Mapping[messages.ShardId, int],
        listed: Iterable[tuple[bytes, messages.ShardId]],
    ) -> list[values.StoredMember]:
        """The members of these points; those that have gone meanwhile are absent."""
        by_shard: dict[messages.ShardId, list[points.ScheduleId]] = {}
        for member, shard in listed:
            by_shard.setdefault(shard, []).append(points.ScheduleId(member[:8]))
        return await self._members(numbers, await self._records(by_shard))

    async def unacknowledged(
        self, set_: setrecord.SetRecord, *, limit: int
    ) -> list[values.OpenPoint]:
        """Slots that workers hold now, then those that wait to be tried again, by due."""
        owner = set_.identity
        numbers = await self._all_lanes(owner)
        replies = await self.index.read_many(
            "read what is unacknowledged",
            [
                command
                for shard, lane in numbers.items()
                for command in self._open_commands(self.index.shard(shard).lane(lane), limit)
            ],
        )
        held: list[tuple[messages.ShardId, bytes, int | None]] = []
        waiting: list[tuple[int, messages.ShardId, bytes]] = []
        for number, shard in enumerate(numbers):
            held += [(shard, member, None) for member in replies[2 * number] if member]
            waiting += [
                (int(score), shard, member)
                for member, score in scripting.scored(replies[2 * number + 1])
                if len(member) > points.CHAIN_LENGTH
            ]
        chosen = held[:limit]
        for due_us, shard, member in heapq.nsmallest(limit - len(chosen), waiting):
            chosen.append((shard, member, due_us))
        return await self._open_points(owner, numbers, chosen)

    def _open_commands(self, lane: str, limit: int) -> list[tuple[Any, ...]]:
        """What is claimed, and the next points, among which the retries are looked for."""
        return [
            (
                "ZRANGE",
                lane,
                points.DUE_LIMIT_US,
                f"({points.HELD_US}",
                "BYSCORE",
                "LIMIT",
                0,
                limit,
            ),
            (
                *("ZRANGE", lane, 0, f"({points.DUE_LIMIT_US}", "BYSCORE"),
                *("LIMIT", 0, max(limit, _LOOKED_AT), "WITHSCORES"),
            ),
        ]

    async def _open_points(
        self,
        owner: setidentity.SetIdentity,
        numbers: Mapping[messages.ShardId, int],
        chosen: Sequence[tuple[messages.ShardId, bytes, int | None]],
    ) -> list[values.OpenPoint]:
        by_shard: dict[messages.ShardId, list[bytes]] = {}
        for shard, member, _ in chosen:
            by_shard.setdefault(shard, []).append(member)
        replies = await self.index.read_many(
            "read the attempts of members",
            [
                ("HMGET", self.index.shard(shard).occrec, *listed)
                for shard, listed in by_shard.items()
            ],
        )
        records_of = {
            (shard, member): records.unpack_or_first(record or b"")
            for (shard, listed), reply in zip(by_shard.items(), replies, strict=True)
            for member, record in zip(listed, reply, strict=True)
        }
        members = await self._of_points(numbers, ((member, shard) for shard, member, _ in chosen))
        names = {points.member_id(owner, one.id): one.id for one in members}
        found = []
        for shard, member, due_us in chosen:
            point = points.parse_member(member, 0)
            name = names.get(points.ScheduleId(member[:8]))
            if point is None or name is None or point.kind is points.PointKind.EXPIRY:
                continue
            record = records_of[shard, member]
            found.append(
                values.OpenPoint(
                    id=name,
                    slot_us=point.slot_us,
                    attempt=record.attempt,
                    since_us=record.first_try_us,
                    last_error=record.last_error,
                    due_us=due_us,
                )
            )
        return found

    # -- counts ----------------------------------------------------------------------------------

    async def _all_lanes(self, owner: setidentity.SetIdentity) -> dict[messages.ShardId, int]:
        layout = self.index.known_layout()
        numbers: dict[messages.ShardId, int] = {}
        for each in filter(None, (layout.former, layout)):
            numbers.update(await self._lanes_in(each, sharding.own_shards(each), owner))
        return numbers

    async def counts(self, set_: setrecord.SetRecord) -> values.MemberCounts:
        """What the set holds; one round trip for all shards."""
        numbers = await self._all_lanes(set_.identity)
        commands: list[tuple[Any, ...]] = []
        for shard, lane in numbers.items():
            names = self.index.shard(shard)
            commands += [
                ("HMGET", names.meta, lanes.entry_field(lane), lanes.count_field(lane)),
                ("ZCOUNT", names.lane(lane), 0, f"({points.DUE_LIMIT_US}"),
                ("ZCOUNT", names.lane(lane), points.DUE_LIMIT_US, f"({points.HELD_US}"),
                ("ZRANGE", names.lane(lane), 0, 0, "WITHSCORES"),
            ]
        replies = iter(await self.index.read_many("count the members of a set", commands))
        members = armed = in_flight = 0
        without = set(sharding.own_shards(self.index.known_layout()))
        dues: list[int] = []
        for shard, (entry, counted), waiting, held, first in zip(
            numbers, replies, replies, replies, replies, strict=True
        ):
            if entry is not None:
                without.discard(shard)
            members += layouts.number_of(counted)
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
        )


def _first_due(shard: messages.ShardId, since_us: int, behind: _Due | None) -> str:
    """The least due of the points of a shard that are not behind, as ZRANGE takes it."""
    if behind is None:
        return str(since_us)
    return f"({behind.due_us}" if shard < behind.shard else str(behind.due_us)


#: Points of a shard that are looked at for retries.
_LOOKED_AT = 1_000
