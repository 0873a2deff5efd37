"""Stores, counts and removes ScheduleSets in the queue.

Each set has a record, and an entry in every shard.

The operator stores them, under its term; the HTTP API and the workers read them. A set's entries
are written before its record, so that a record is never of a set that the shards refuse; the record
is removed last. A shard that was made anew has no entries: the operator stores all sets again. A
mark among the records says that all sets are stored; without it, a set that the operator has not
stored again yet would seem not to exist.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.definitions import lanes, signedblobs
from duepoint.delayqueue.members import pages, values
from duepoint.delayqueue.wire import scripting
from duepoint.runs import run
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord
from duepoint.schedules.sets.setrecord import SetRecord, SetState

log = structlog.get_logger(__name__)

_RECORDS_TOGETHER = 200
#: The field of the mark; the field of every set has a slash.
_COMPLETE = "complete"


@dataclass(eq=False)
class Sets:
    """Stores and reads the sets, and counts their members."""

    index: index.Index
    layouts: layouts.Layouts
    signed_blobs: signedblobs.SignedBlobs

    async def read(self, namespace: str, name: str) -> setrecord.SetRecord | None:
        """Return the stored record; None if there is none, or if we did not write it."""
        return (await self._read(namespace, name))[0]

    async def find(self, namespace: str, name: str) -> setrecord.SetRecord | None:
        """Return the set; None if no such set exists.

        Raises Uninitialised if the operator has not stored every set yet.
        """
        record, is_complete = await self._read(namespace, name)
        if record is None and not is_complete:
            raise queue_errors.Uninitialised(
                "the index does not hold every ScheduleSet yet: the operator stores them"
            )
        return record

    async def _read(self, namespace: str, name: str) -> tuple[setrecord.SetRecord | None, bool]:
        place = f"{namespace}/{name}"
        ((found, mark),) = await self.index.read(
            "read a set", ("HMGET", self.index.keys.sets, place, _COMPLETE)
        )
        return None if found is None else self._unpacked(place, found), mark is not None

    async def all(self) -> list[setrecord.SetRecord]:
        """Return every set, by namespace and name."""
        found: dict[bytes, bytes] = {}
        cursor = 0
        while True:
            ((cursor, some),) = await self.index.read(
                "read the sets",
                ("HSCAN", self.index.keys.sets, cursor, "COUNT", _RECORDS_TOGETHER),
            )
            found.update(some)
            if int(cursor) == 0:
                break
        found.pop(_COMPLETE.encode(), None)
        records = (self._unpacked(place.decode(), data) for place, data in sorted(found.items()))
        return [record for record in records if record is not None]

    def _unpacked(self, place: str, data: bytes) -> setrecord.SetRecord | None:
        try:
            return setrecord.unpack(place, data, self.signed_blobs.mac)
        except setrecord.UnknownSetRecord as unknown:
            log.warning("record of a set ignored", set=place, error=str(unknown))
            return None

    async def store(self, record: setrecord.SetRecord, blob: bytes, epoch: messages.Epoch) -> None:
        """Store the set's entry in every shard, and then its record; may be repeated.

        Args:
            blob: the content whose digest is ``record.target``; empty if there is no target.

        Raises LayoutChanged if the index was resharded meanwhile, Fenced if a newer leader has been
        here.
        """
        await self.store_entries(record, blob, epoch)
        packed = setrecord.pack(record, self.signed_blobs.mac)
        await self._store_field(record.place, packed, epoch)

    async def mark_complete(self, epoch: messages.Epoch) -> None:
        """Note that every set is stored: ``find`` answers None from now on."""
        await self._store_field(_COMPLETE, b"1", epoch)

    async def store_entries(
        self, record: setrecord.SetRecord, blob: bytes, epoch: messages.Epoch
    ) -> None:
        """Store the set's entry in every shard; its record stays as it is."""
        shards = sharding.all_shards(self.index.known_layout())
        await asyncio.gather(*(self._store_entry(shard, record, blob, epoch) for shard in shards))

    async def forget(self, record: setrecord.SetRecord, epoch: messages.Epoch) -> None:
        """Remove the set's record; the caller removes its entries in the shards elsewhere."""
        await self._store_field(record.place, b"", epoch)

    async def _store_field(self, field: str, value: bytes, epoch: messages.Epoch) -> None:
        await self.layouts.change(epoch, {}, place=field.encode(), record=value)

    async def count_again(
        self, record: setrecord.SetRecord, lost: run.SetTally, epoch: messages.Epoch
    ) -> None:
        """Add the counts of ended slots that the shards have lost; may be repeated.

        Changes nothing if slots end meanwhile: the caller counts again.
        """
        shard = sharding.own_shards(self.index.known_layout())[0]
        field = lanes.tally_field(record.identity)
        ((stored,),) = await self.index.read(
            "read how members ended", ("HMGET", self.index.shard(shard).meta, field)
        )
        wanted = run.read_tally(stored).plus(lost).text
        tally = {"field": field, "stored": (stored or b"").decode(), "wanted": wanted}
        await self._store_entry(shard, record, b"", epoch, tally=tally)

    async def _store_entry(
        self,
        shard: messages.ShardId,
        record: setrecord.SetRecord,
        blob: bytes,
        epoch: messages.Epoch,
        **more: object,
    ) -> None:
        lane = lanes.of_set(record.identity)
        try:
            call = self.index.call(
                "setentry",
                shard,
                self.index.shard(shard).lane(lane),
                epoch=epoch,
                lane=lane,
                entry=setrecord.entry_text(record),
                **more,
            )
            blobs = [record.target.encode(), self.signed_blobs.pack(blob)] if blob else []
            call.put(blobs=call.run(blobs))
            await self.index.pipelined_durably.run(call)
        except queue_errors.LayoutChanged:
            if sharding.layout_of(shard) == self.index.known_layout().number:
                raise

    async def members(self, set_: setrecord.SetRecord) -> int:
        """Return how many members a set has; one short command for each shard."""
        field = lanes.count_field(lanes.of_set(set_.identity))
        replies = await self.index.read_many(
            "count the members of a set",
            [
                ("HMGET", self.index.shard(shard).meta, field)
                for shard in sharding.all_shards(self.index.known_layout())
            ],
        )
        return sum(layouts.number_of(counted) for (counted,) in replies)

    async def counts(self, set_: setrecord.SetRecord) -> values.MemberCounts:
        """Return the counts of the set; one round trip for all shards."""
        lane = lanes.of_set(set_.identity)
        shards = sharding.all_shards(self.index.known_layout())
        commands: list[tuple[Any, ...]] = []
        tally = lanes.tally_field(set_.identity)
        for shard in shards:
            names = self.index.shard(shard)
            commands += [
                ("HMGET", names.meta, lane, lanes.count_field(lane), tally),
                ("ZCOUNT", names.lane(lane), 0, f"({points.DUE_LIMIT_US}"),
                ("ZCOUNT", names.lane(lane), points.DUE_LIMIT_US, "(+inf"),
                ("ZRANGE", names.lane(lane), 0, 0, "WITHSCORES"),
            ]
        replies = iter(await self.index.read_many("count the members of a set", commands))
        members = armed = in_flight = 0
        ended = run.NONE_ENDED
        without = set(sharding.own_shards(self.index.known_layout()))
        dues: list[int] = []
        for shard, (entry, counted, sums), waiting, held, first in zip(
            shards, replies, replies, replies, replies, strict=True
        ):
            if entry is not None:
                without.discard(shard)
            members += layouts.number_of(counted)
            ended = ended.plus(run.read_tally(sums))
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
            ended=ended,
        )


#: Buckets that are handed to one script: most have some fifty members, those of a set that is far
#: from its limit few. And scripts of one step.
_BUCKETS_TOGETHER = 128
_SCRIPTS = 32
_OCCURRENCES_TOGETHER = 500


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step of a removal.

    Attributes:
        removed: members removed by this step.
        left: members that are left, as far as is known.
        is_done: whether nothing is left, not even the set itself.
    """

    removed: int
    left: int
    is_done: bool


@dataclass(slots=True)
class _Walk:
    """How far the removal of one set has come.

    Attributes:
        layout: number of the layout, and whether members move to it.
        shard: how many shards are done, and ``bucket``: how many buckets of the next one.
    """

    layout: tuple[int, bool]
    left: int
    shard: int = 0
    bucket: int = 0


@dataclass(eq=False)
class SetRemovals:
    """Removes sets with all their members, for the leader of a term, in bounded steps.

    The buckets of a set in a shard are known, so a step goes through some of them, removes the
    set's members, and remembers its position. That is only in memory: another operator begins with
    the first bucket and skips the empty ones. While the index is resharded, members may move to a
    bucket that is done; so the walk begins anew until that is over. At the end the entries in the
    shards are removed, and then the record.
    """

    index: index.Index
    layouts: layouts.Layouts
    sets: Sets
    _walks: dict[str, _Walk] = field(default_factory=dict)

    async def step(self, record: SetRecord, epoch: messages.Epoch, *, most: int = 2_000) -> Removal:
        """Remove some members of a set that is stored as deleting; may be repeated at any time.

        Args:
            record: its state is DELETING.
            most: about how many members to remove.

        Raises LayoutChanged if the index was resharded meanwhile, Fenced if a newer leader has been
        here.
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
        """Return the walk of this set's removal; a new one first marks the set in every shard."""
        of_layout = (layout.number, layout.former is not None)
        walk = self._walks.get(record.uid)
        if walk is None or walk.layout != of_layout:
            deleting = msgspec.structs.replace(record, state=SetState.DELETING)
            if await self._has_place(record):
                await self.sets.store(deleting, b"", epoch)
            else:
                await self.sets.store_entries(deleting, b"", epoch)
            counted = await self.sets.counts(record)
            walk = self._walks[record.uid] = _Walk(of_layout, counted.members)
        return walk

    async def _has_place(self, record: SetRecord) -> bool:
        """Whether no other set has its name."""
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
        """Run one script; return how many members it has removed."""
        lane = lanes.of_set(record.identity)
        buckets = pages.buckets_of(self.index, record.identity, shard)
        chunk = buckets.some(walk.bucket, _BUCKETS_TOGETHER)
        if not chunk and walk.layout[1]:
            walk.shard, walk.bucket = walk.shard + 1, 0
            return 0
        names = self.index.shard(shard)
        call = self.index.call(
            "removeset",
            shard,
            names.lane(lane),
            *chunk,
            epoch=epoch,
            lane=lane,
            tally=lanes.tally_field(record.identity),
            most=most,
            batch=_OCCURRENCES_TOGETHER,
        )
        try:
            reply = await self.index.scripts.run(call)
        except queue_errors.LayoutChanged:
            if sharding.layout_of(shard) == self.index.known_layout().number:
                raise
            reply = [b"GONE"]  # a former shard that is closed by now
        if reply[0] == b"OPEN":
            self._walks.pop(record.uid, None)  # the next walk writes its entry anew
            return 0
        if reply[0] == b"GONE" or not chunk:
            text = record.identity.text.decode()
            forgotten = (("UNLINK", names.log(text)), ("ZREM", names.logs, text))
            await self.index.read("forget dead letters", *forgotten)
            walk.shard, walk.bucket = walk.shard + 1, 0
            return 0
        removed, emptied = reply
        walk.bucket += emptied
        return int(removed)

    async def _end(
        self, record: SetRecord, walk: _Walk, epoch: messages.Epoch, removed: int
    ) -> Removal:
        """End the removal: every bucket is done."""
        del self._walks[record.uid]
        if walk.layout[1]:
            await self.layouts.read()  # members may have moved behind the walk: once more
            return Removal(removed=removed, left=max(walk.left - removed, 0), is_done=False)
        if await self._has_place(record):
            await self.sets.forget(record, epoch)
        return Removal(removed=removed, left=0, is_done=True)
