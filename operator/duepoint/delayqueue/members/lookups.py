"""Members of a set by their ids: what stands in their records, and when they fire next.

Nothing is changed. While the index is resharded a member is looked for in its former shard first,
and in the new one where it is not there. Reading takes one round trip for any number of members: a
script finds the due of each by its record. One server answers for all shards at once, because each
reply costs a reader as much as a member; the shards of a cluster are asked side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import structlog

from duepoint import errors, telemetry
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, lanes, putting, reading
from duepoint.delayqueue.members import rows, values
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

#: Members that one script reads: some 3 us of the server's time each.
_TOGETHER = 400
#: A shard, the bucket in it as ``keys.place_of`` numbers them, and an id.
_Place = tuple[messages.ShardId, int, points.ScheduleId]
#: Records of a shard by the ids of their members.
Records = Sequence[tuple[points.ScheduleId, bytes]]


class _Found(NamedTuple):
    """A stored member and what its record names by number."""

    id: points.ScheduleId
    packed: codec.Packed


@dataclass(eq=False)
class MemberLookups:
    """Reads members by their ids."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    lanes: lanes.Lanes

    async def get(
        self, set_: setrecord.SetRecord, names: Sequence[str]
    ) -> list[values.StoredMember | None]:
        """The members of these ids, in their order; None = there is none."""
        ids = rows.Ids(set_.identity, self.index.buckets)
        distinct = list(dict.fromkeys(names))
        wanted = [putting.Row(place, *ids.of(name.encode())) for place, name in enumerate(distinct)]
        found: dict[str, values.StoredMember] = {}

        async def read_in(
            layout: messages.Layout, left: list[putting.Row]
        ) -> putting.Left[putting.Row]:
            found.update(await self._get_in(layout, set_, left))
            return putting.Left([row for row in left if distinct[row.place] not in found], [])

        await putting.where_they_are(self.index, self.layouts, wanted, read_in)
        return [found.get(name) for name in names]

    async def _get_in(
        self, layout: messages.Layout, set_: setrecord.SetRecord, wanted: Sequence[putting.Row]
    ) -> dict[str, values.StoredMember]:
        shards, last = sharding.own_shards(layout), layout.shards - 1
        placed = [(shards[row.low & last], row.bucket, row.id) for row in wanted]
        numbers = await self.lanes.within(
            layout, dict.fromkeys(shard for shard, _, _ in placed), lanes.text_of(set_.identity)
        )
        found = await self._at(numbers, placed)
        return {member.id: member for member in found}

    async def of_points(
        self,
        numbers: Mapping[messages.ShardId, int],
        listed: Iterable[tuple[bytes, messages.ShardId]],
    ) -> list[values.StoredMember]:
        """The members of these points; those that have gone meanwhile are absent.

        Args:
            numbers: of the set, in each of the shards.
        """
        buckets = self.index.buckets
        ids = dict.fromkeys((shard, points.ScheduleId(member[:8])) for member, shard in listed)
        placed = [(shard, keys.place_of(member_id, buckets), member_id) for shard, member_id in ids]
        return await self._at(numbers, placed)

    async def _at(
        self,
        numbers: Mapping[messages.ShardId, int],
        placed: Iterable[_Place],
    ) -> list[values.StoredMember]:
        """The members in these places, as far as their shards know the set."""
        listed = [one for one in placed if one[0] in numbers]
        parts = list(self._parts(listed))
        replies = await self.index.scripts.run_many([self._call(numbers, part) for part in parts])
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
            of_set = _of_lane(numbers[shard], records)
            members += await self._members(shard, of_set, [scores[one.id] for one in of_set])
        return members

    def _parts(self, placed: Sequence[_Place]) -> Iterator[Sequence[_Place]]:
        """What one script reads: of one shard each where shards lie on several servers."""
        groups: Iterable[Sequence[_Place]] = (placed,)
        if self.index.servers.is_cluster:
            by_shard: dict[messages.ShardId, list[_Place]] = {}
            for one in placed:
                by_shard.setdefault(one[0], []).append(one)
            groups = by_shard.values()
        for group in groups:
            for first in range(0, len(group), _TOGETHER):
                yield group[first : first + _TOGETHER]

    def _call(
        self, numbers: Mapping[messages.ShardId, int], part: Sequence[_Place]
    ) -> scripting.ScriptCall:
        call = self.index.call("readmembers", None)
        buckets, key = self.index.buckets, call.key
        places: list[int] = []
        for shard, place, member_id in part:
            names = self.index.shard(shard)
            places += (key(names.lane(numbers[shard])), key(names.bucket_at(place, buckets)))
            call.values.append(member_id)
        call.put(places=places)
        return call

    async def of_records(
        self,
        numbers: Mapping[messages.ShardId, int],
        stored: Mapping[messages.ShardId, Records],
    ) -> list[values.StoredMember]:
        """The members of the set among these records, with the dues of their chains."""
        found = {
            shard: of_set
            for shard, listed in stored.items()
            if (of_set := _of_lane(numbers[shard], listed))
        }
        replies = await self.index.read_many(
            "read the dues of members",
            [
                (
                    "ZMSCORE",
                    self.index.shard(shard).lane(numbers[shard]),
                    *[one.id + one.packed.timing_version for one in listed],
                )
                for shard, listed in found.items()
            ],
        )
        members: list[values.StoredMember] = []
        for (shard, listed), scores in zip(found.items(), replies, strict=True):
            members += await self._members(shard, listed, scores)
        return members

    async def _members(
        self,
        shard: messages.ShardId,
        listed: Sequence[_Found],
        scores: Iterable[float | bytes | None],
    ) -> list[values.StoredMember]:
        """The members with the scores of their chains, without those that cannot be read."""
        rules = {one.packed.rule for one in listed if isinstance(one.packed.rule, int)}
        await self.reader.learn_numbers(shard, rules)
        members = (
            self._member(shard, one, score) for one, score in zip(listed, scores, strict=True)
        )
        return [member for member in members if member is not None]

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


def _of_lane(lane: int, listed: Records) -> list[_Found]:
    return [
        _Found(member_id, packed)
        for member_id, packed in reading.unpacked(listed).items()
        if packed.namespace == lane
    ]
