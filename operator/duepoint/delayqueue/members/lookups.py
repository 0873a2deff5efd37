"""Reads members of a set by their ids: their records, and when they fire next.

Reading changes nothing. While the index is resharded, a member is read from its former shard first,
and from the new one if it is not there. Any number of members takes two round trips: one for their
records, and one for the dues of their chains.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from duepoint import telemetry
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, kinds, lanes, putting, reading
from duepoint.delayqueue.members import rows, values
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

#: A shard, the bucket in it as ``keys.place_of`` numbers them, and an id.
_Place = tuple[messages.ShardId, int, points.ScheduleId]
#: Records of a shard by the ids of their members.
Records = Sequence[tuple[points.ScheduleId, bytes]]


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
            shards, last = sharding.own_shards(layout), layout.shards - 1
            placed = [(shards[row.low & last], row.bucket, row.id) for row in left]
            found.update({one.id: one for one in await self._at(set_.identity, placed)})
            return [row for row in left if distinct[row.place] not in found], []

        await putting.send_to_shards(self.index, self.layouts, wanted, read_in)
        return [found.get(name) for name in names]

    async def of_points(
        self, owner: points.SetIdentity, listed: Iterable[tuple[bytes, messages.ShardId]]
    ) -> list[values.StoredMember]:
        """Return the members of these points, without those that were removed meanwhile."""
        buckets = self.index.buckets
        ids = dict.fromkeys((shard, points.ScheduleId(member[:8])) for member, shard in listed)
        placed = [(shard, keys.place_of(member_id, buckets), member_id) for shard, member_id in ids]
        return await self._at(owner, placed)

    async def _at(
        self, owner: points.SetIdentity, placed: Iterable[_Place]
    ) -> list[values.StoredMember]:
        """Return the members of the set in these places."""
        by_bucket: dict[tuple[messages.ShardId, int], list[points.ScheduleId]] = {}
        for shard, place, member_id in placed:
            by_bucket.setdefault((shard, place), []).append(member_id)
        replies = await self.index.read_many(
            "read members",
            [
                ("HMGET", self.index.shard(shard).bucket_at(place, self.index.buckets), *ids)
                for (shard, place), ids in by_bucket.items()
            ],
        )
        stored: dict[messages.ShardId, list[tuple[points.ScheduleId, bytes]]] = {}
        for ((shard, _), ids), records in zip(by_bucket.items(), replies, strict=True):
            found = zip(ids, records, strict=True)
            stored.setdefault(shard, []).extend(each for each in found if each[1] is not None)
        return await self.of_records(owner, stored)

    async def of_records(
        self, owner: points.SetIdentity, stored: Mapping[messages.ShardId, Records]
    ) -> list[values.StoredMember]:
        """Return the members of the set among these records, with the dues of their chains."""
        lane = lanes.of_set(owner)
        listed: list[tuple[points.ScheduleId, codec.Packed, bytes]] = []
        commands: list[tuple[Any, ...]] = []
        for shard, records in stored.items():
            packed = reading.unpacked(records)
            known = await self.kinds.read(shard, {each.kind for each in packed.values()})
            here = [
                (member_id, each, each.inline or kind.rule_text)
                for member_id, each in packed.items()
                if (kind := known.get(each.kind)) is not None and kind.lane == lane
            ]
            if here:
                listed += here
                chains = (member_id + each.timing_version for member_id, each, _ in here)
                commands.append(("ZMSCORE", self.index.shard(shard).lane(lane), *chains))
        replies = await self.index.read_many("read the dues of members", commands)
        scores = itertools.chain.from_iterable(replies)
        members = (_member(*one, score) for one, score in zip(listed, scores, strict=True))
        return [member for member in members if member is not None]


def _member(
    member_id: points.ScheduleId, packed: codec.Packed, rule_text: bytes, score: float | None
) -> values.StoredMember | None:
    """Return the member with the score of its chain; None if its rule is unreadable."""
    try:
        rule = kinds.parsed_rule(rule_text)
    except msgspec.DecodeError:
        telemetry.unreadable_total.labels("rule").inc()
        log.exception("rule of a member cannot be read", schedule_id=member_id.hex())
        return None
    due = None if score is None else int(score)
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
