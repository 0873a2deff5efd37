"""Reads members of a set by their ids: their records, and when they fire next.

Reading changes nothing. While the index is resharded, a member is read from its former shard first,
and from the new one if it is not there. Any number of members takes one round trip: a script finds
the due of each by its record. A single server answers for all shards in one reply, because each
reply costs the reader as much as a member; the shards of a cluster are read concurrently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import structlog

from duepoint import errors, telemetry
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, kinds, lanes, putting, reading
from duepoint.delayqueue.members import rows, values
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

#: Most members that one script reads: some 3 us of the server's time each.
_TOGETHER = 400
#: A shard, the bucket in it as ``keys.place_of`` numbers them, and an id.
_Place = tuple[messages.ShardId, int, points.ScheduleId]
#: Records of a shard by the ids of their members.
Records = Sequence[tuple[points.ScheduleId, bytes]]


class _Found(NamedTuple):
    """A stored member.

    Attributes:
        rule: the text of its rule.
    """

    id: points.ScheduleId
    packed: codec.Packed
    rule: bytes


@dataclass(eq=False)
class MemberLookups:
    """Reads members by their ids."""

    index: index.Index
    layouts: layouts.Layouts
    kinds: kinds.Kinds

    async def get(
        self, set_: setrecord.SetRecord, names: Sequence[str]
    ) -> list[values.StoredMember | None]:
        """Return the members with these ids, in their order; None = there is none."""
        ids = rows.Ids(set_.identity, self.index.buckets)
        distinct = list(dict.fromkeys(names))
        wanted = [putting.Row(place, *ids.of(name.encode())) for place, name in enumerate(distinct)]
        found: dict[str, values.StoredMember] = {}

        async def read_in(
            layout: messages.Layout, left: list[putting.Row]
        ) -> tuple[list[putting.Row], list[putting.Row]]:
            found.update(await self._get_in(layout, set_, left))
            return [row for row in left if distinct[row.place] not in found], []

        await putting.where_they_are(self.index, self.layouts, wanted, read_in)
        return [found.get(name) for name in names]

    async def _get_in(
        self, layout: messages.Layout, set_: setrecord.SetRecord, wanted: Sequence[putting.Row]
    ) -> dict[str, values.StoredMember]:
        shards, last = sharding.own_shards(layout), layout.shards - 1
        placed = [(shards[row.low & last], row.bucket, row.id) for row in wanted]
        found = await self._at(lanes.of_set(set_.identity), placed)
        return {member.id: member for member in found}

    async def of_points(
        self, owner: points.SetIdentity, listed: Iterable[tuple[bytes, messages.ShardId]]
    ) -> list[values.StoredMember]:
        """Return the members of these points, without those that were removed meanwhile."""
        buckets = self.index.buckets
        ids = dict.fromkeys((shard, points.ScheduleId(member[:8])) for member, shard in listed)
        placed = [(shard, keys.place_of(member_id, buckets), member_id) for shard, member_id in ids]
        return await self._at(lanes.of_set(owner), placed)

    async def _at(self, lane: str, placed: Sequence[_Place]) -> list[values.StoredMember]:
        """Return the members of the set in these places."""
        parts = list(self._parts(placed))
        replies = await self.index.scripts.run_many([self._call(lane, part) for part in parts])
        stored: dict[messages.ShardId, list[tuple[points.ScheduleId, bytes]]] = {}
        scores: dict[points.ScheduleId, bytes | None] = {}
        for part, reply in zip(parts, replies, strict=True):
            if isinstance(reply, errors.DuepointError):
                raise reply
            for (shard, _, id_), record, score in zip(part, reply[::2], reply[1::2], strict=True):
                if record is not None:
                    stored.setdefault(shard, []).append((id_, record))
                    scores[id_] = score
        members: list[values.StoredMember] = []
        for shard, records in stored.items():
            of_set = await self._of_lane(shard, lane, records)
            members += _members(of_set, [scores[one.id] for one in of_set])
        return members

    def _parts(self, placed: Sequence[_Place]) -> Iterator[Sequence[_Place]]:
        """Yield the places for each script: of one shard each if there are several servers."""
        groups: Iterable[Sequence[_Place]] = (placed,)
        if self.index.servers.is_cluster:
            by_shard: dict[messages.ShardId, list[_Place]] = {}
            for one in placed:
                by_shard.setdefault(one[0], []).append(one)
            groups = by_shard.values()
        for group in groups:
            for first in range(0, len(group), _TOGETHER):
                yield group[first : first + _TOGETHER]

    def _call(self, lane: str, part: Sequence[_Place]) -> scripting.ScriptCall:
        call = self.index.call("readmembers", None)
        buckets, key = self.index.buckets, call.key
        places: list[int] = []
        for shard, place, member_id in part:
            names = self.index.shard(shard)
            places += (key(names.lane(lane)), key(names.bucket_at(place, buckets)))
            call.values.append(member_id)
        call.put(places=places)
        return call

    async def of_records(
        self, owner: points.SetIdentity, shard: messages.ShardId, stored: Records
    ) -> list[values.StoredMember]:
        """Return the members of the set among these records, with the dues of their chains."""
        lane = lanes.of_set(owner)
        found = await self._of_lane(shard, lane, stored)
        if not found:
            return []
        chains = [one.id + one.packed.timing_version for one in found]
        (scores,) = await self.index.read(
            "read the dues of members", ("ZMSCORE", self.index.shard(shard).lane(lane), *chains)
        )
        return _members(found, scores)

    async def _of_lane(self, shard: messages.ShardId, lane: str, listed: Records) -> list[_Found]:
        """Return the members of the set whose kind is stored."""
        packed = reading.unpacked(listed)
        known = await self.kinds.read(shard, {each.kind for each in packed.values()})
        return [
            _Found(member_id, each, each.inline or kind.rule_text)
            for member_id, each in packed.items()
            if (kind := known.get(each.kind)) is not None and kind.lane == lane
        ]


def _members(
    listed: Sequence[_Found], scores: Iterable[float | bytes | None]
) -> list[values.StoredMember]:
    """Return the members with the scores of their chains, without unreadable ones."""
    members = (_member(one, score) for one, score in zip(listed, scores, strict=True))
    return [member for member in members if member is not None]


def _member(found: _Found, score: float | bytes | None) -> values.StoredMember | None:
    packed = found.packed
    try:
        rule = kinds.parsed_rule(found.rule)
    except msgspec.DecodeError:
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
