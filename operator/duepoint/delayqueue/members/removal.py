"""All members of a set that is being deleted, removed in bounded steps.

The buckets of a set in a shard are known, so a step goes through some of them, removes what is the
set's, and remembers where it was. That place is in memory alone: another operator begins with the
first bucket and passes over the empty ones. While the index is resharded members move, perhaps to a
bucket that is behind; so the walk begins anew until that is over. Last the shards forget the set,
and then its record goes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import msgspec

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import interning, lanes
from duepoint.delayqueue.members import counting, pages, sets
from duepoint.schedules.sets.setrecord import SetRecord, SetState

#: Buckets that are handed to one script, by how many the one before has emptied: most have some
#: fifty members, those of a set that is far from its limit few. And scripts of one step.
_LEAST_TOGETHER, _MOST_TOGETHER = 16, 256
_SCRIPTS = 32
_OCCURRENCES_TOGETHER = 500


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has done.

    Attributes:
        removed: members, by this step.
        left: members that are left, as far as is known.
        is_done: nothing is left, and the queue does not know the set any more.
    """

    removed: int
    left: int
    is_done: bool


@dataclass(slots=True)
class _Walk:
    """How far the removal of one set has come.

    Attributes:
        layout: number of the layout, and whether members move to it.
        shard: how many shards are behind, and ``bucket``: how many buckets of the next one.
        together: buckets of the next script.
    """

    layout: tuple[int, bool]
    left: int
    shard: int = 0
    bucket: int = 0
    together: int = _LEAST_TOGETHER


@dataclass(eq=False)
class SetRemovals:
    """Removes sets for the leader of a term."""

    index: index.Index
    layouts: layouts.Layouts
    lanes: lanes.Lanes
    interned: interning.Interned
    sets: sets.Sets
    counting: counting.MemberCounting
    _walks: dict[str, _Walk] = field(default_factory=dict)

    async def step(self, record: SetRecord, epoch: messages.Epoch, *, most: int = 2_000) -> Removal:
        """Remove some members of a set that is stored as deleting; may be repeated at any time.

        Args:
            record: its state is DELETING.
            most: about so many members are removed.

        Raises LayoutChanged where the index was resharded meanwhile, Fenced where a newer leader
        has been here.
        """
        layout = self.index.known_layout()
        walk = await self._walk_of(record, layout, epoch)
        shards = sharding.all_shards(layout)
        removed = 0
        for _ in range(_SCRIPTS):
            if removed >= most:
                break
            if walk.shard >= len(shards):
                return await self._end(record, walk, epoch, removed)
            removed += await self._some(record, walk, shards[walk.shard], most - removed, epoch)
        walk.left = max(walk.left - removed, 0)
        return Removal(removed=removed, left=walk.left, is_done=False)

    async def _walk_of(
        self, record: SetRecord, layout: messages.Layout, epoch: messages.Epoch
    ) -> _Walk:
        """Where this set's removal is; at its beginning every shard learns that it is deleted."""
        of_layout = (layout.number, layout.former is not None)
        walk = self._walks.get(record.uid)
        if walk is None or walk.layout != of_layout:
            deleting = msgspec.structs.replace(record, state=SetState.DELETING)
            if await self._has_place(record):
                await self.sets.store(deleting, b"", epoch)
            else:
                await self.sets.store_entries(deleting, b"", epoch)
            counted = await self.counting.counts(record)
            walk = self._walks[record.uid] = _Walk(of_layout, counted.members)
        return walk

    async def _has_place(self, record: SetRecord) -> bool:
        """Whether no other set stands under its name."""
        stored = await self.sets.read(record.namespace, record.name)
        return stored is None or stored.uid == record.uid

    async def _some(
        self,
        record: SetRecord,
        walk: _Walk,
        shard: messages.ShardId,
        most: int,
        epoch: messages.Epoch,
    ) -> int:
        """One script; how many members it has removed."""
        try:
            lane = (await self.lanes.of([shard], lanes.text_of(record.identity))).get(shard)
        except queue_errors.LayoutChanged:
            if sharding.layout_of(shard) == self.index.known_layout().number:
                raise
            lane = None  # a former shard that is closed by now
        chunk: list[str] = []
        if lane is not None:
            chunk = self._buckets(record, shard).some(walk.bucket, walk.together)
        is_moving = walk.layout[1]
        if lane is None or (not chunk and is_moving):
            walk.shard, walk.bucket = walk.shard + 1, 0
            return 0
        names = self.index.shard(shard)
        call = self.index.call(
            "removeset",
            shard,
            names.lane(lane),
            *itertools.chain.from_iterable(
                (bucket, names.history_beside(bucket, of_member=True)) for bucket in chunk
            ),
            epoch=epoch,
            incarnation=self.interned.incarnation(shard),
            lane=lane,
            tally=lanes.tally_field(record.identity),
            most=most,
            batch=_OCCURRENCES_TOGETHER,
        )
        try:
            reply = await self.index.scripts.run(call)
        except queue_errors.LayoutChanged:
            self.interned.forget(shard)
            raise
        if reply[0] == b"OPEN":
            self._walks.pop(record.uid, None)  # its entry is written anew
            return 0
        if reply[0] == b"GONE" or not chunk:
            walk.shard, walk.bucket = walk.shard + 1, 0
            return 0
        removed, emptied = reply
        walk.bucket += emptied
        walk.together = min(max(2 * int(emptied), _LEAST_TOGETHER), _MOST_TOGETHER)
        return int(removed)

    def _buckets(self, record: SetRecord, shard: messages.ShardId) -> keys.SetBuckets:
        """Every bucket of a shard that may hold members of the set."""
        layout = self.index.known_layout()
        if sharding.layout_of(shard) != layout.number and layout.former is not None:
            layout = layout.former
        return pages.buckets_of(self.index, record.identity, shard, layout.shards)

    async def _end(
        self, record: SetRecord, walk: _Walk, epoch: messages.Epoch, removed: int
    ) -> Removal:
        """Every bucket is behind."""
        del self._walks[record.uid]
        if walk.layout[1]:
            await self.layouts.read()  # members may have moved behind the walk: once more
            return Removal(removed=removed, left=max(walk.left - removed, 0), is_done=False)
        if await self._has_place(record):
            await self.sets.forget(record, epoch)
        return Removal(removed=removed, left=0, is_done=True)
