"""Removing a set with all its members, step by step, beside everything else that runs.

A set of ten million members is no single command: each step takes a bounded number of them out of
one shard. Its points go first, as a whole and without work for the server, so that nothing of the
set fires any more; then its members' records, bucket by bucket. How far the steps have come is
memory of this process: another leader begins again and passes quickly over what is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import interning
from duepoint.delayqueue.members import lanes, sets
from duepoint.schedules.sets import setrecord

#: Buckets of one script: most of them hold some fifty members, or none.
_BUCKETS_TOGETHER = 256
#: Members of one script, some 3 us of the server's time each.
_MOST_TOGETHER = 1_000


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has done.

    Attributes:
        removed: members that are gone by it.
        left: members that the shards still count.
        is_done: nothing of the set is left, its record included.
    """

    removed: int
    left: int
    is_done: bool


@dataclass(slots=True)
class _Place:
    """How far the removal of one set has come.

    Attributes:
        shard: how many shards are done with.
        bucket: how many buckets of the next one are.
    """

    layout: messages.Layout
    shard: int = 0
    bucket: int = 0


@dataclass(eq=False)
class SetRemover:
    """Removes sets."""

    index: index.Index
    layouts: layouts.Layouts
    lanes: lanes.SetLanes
    interned: interning.Interned
    sets: sets.Sets

    def __post_init__(self) -> None:
        self._places: dict[str, _Place] = {}

    async def step(
        self, record: setrecord.SetRecord, epoch: messages.Epoch, *, most: int
    ) -> Removal:
        """Remove up to about ``most`` members; to be called until it is done.

        The set must have been stored as DELETING, or members may be added behind its back.
        """
        layout = await self.layouts.read()
        place = self._places.get(record.uid)
        if place is None or place.layout != layout:
            place = self._places[record.uid] = _Place(layout)
        shards = sharding.all_shards(layout)
        removed = 0
        while removed < most and place.shard < len(shards):
            shard = shards[place.shard]
            try:
                removed += await self._remove_some(record, shard, place, epoch)
            except queue_errors.LayoutChanged:
                self.interned.forget(shard)
                if sharding.layout_of(shard) == layout.number:
                    raise
                place.shard, place.bucket = place.shard + 1, 0  # of a former layout, and closed
        left = await self._left(record, shards)
        if place.shard < len(shards):
            return Removal(removed=removed, left=left, is_done=False)
        del self._places[record.uid]
        if layout.former is not None:  # a batch may have been on its way: look at all again
            return Removal(removed=removed, left=left, is_done=False)
        await self.sets.forget(record, epoch)
        return Removal(removed=removed, left=0, is_done=True)

    async def _remove_some(
        self,
        record: setrecord.SetRecord,
        shard: messages.ShardId,
        place: _Place,
        epoch: messages.Epoch,
    ) -> int:
        """One script; the place moves on."""
        owner = record.identity
        numbers = await self.lanes.of([shard], owner)
        if shard not in numbers:
            place.shard, place.bucket = place.shard + 1, 0
            return 0
        of_shard = place.layout
        if sharding.layout_of(shard) != of_shard.number and of_shard.former is not None:
            of_shard = of_shard.former
        names, buckets, lane = self.index.shard(shard), self.index.buckets, numbers[shard]
        populations = keys.set_populations(
            owner.uid, owner.spread, sharding.index_of(shard), of_shard.shards
        )
        count = len(populations) * buckets
        chunk = range(place.bucket, min(place.bucket + _BUCKETS_TOGETHER, count))
        call = self.index.call(
            "clearset",
            shard,
            names.lane(lane),
            *(
                names.bucket_at(
                    populations[number // buckets] * buckets + number % buckets, buckets
                )
                for number in chunk
            ),
            epoch=epoch,
            incarnation=self.interned.incarnation(shard),
            lane=str(lane),
            most=_MOST_TOGETHER,
            last=chunk.stop >= count,
            text=lanes.text_of(owner),
        )
        removed, passed = await self.index.scripts.run(call)
        place.bucket += passed
        if place.bucket >= count:
            self.interned.forget(shard)  # among others the number of the set, which is gone
            place.shard, place.bucket = place.shard + 1, 0
        return int(removed)

    async def _left(self, record: setrecord.SetRecord, shards: tuple[messages.ShardId, ...]) -> int:
        current = self.index.known_layout().number
        numbers = await self.lanes.of(
            (each for each in shards if sharding.layout_of(each) == current), record.identity
        )
        replies = await self.index.read_many(
            "count the members of a set",
            [
                ("HMGET", self.index.shard(shard).meta, lanes.count_field(lane))
                for shard, lane in numbers.items()
            ],
        )
        return sum(layouts.number_of(count) for (count,) in replies)
