"""The ScheduleSets that the queue knows: their records, and the entry of each in every shard.

The operator stores them, under its term; the HTTP API and the workers read them. A set's entries
are written before its record, so that what is read is never of a set that the shards refuse; its
record goes last. A shard that was made anew has no entries: the operator stores all sets again.
Among the records a mark says that every set is there, so that a set that the operator has not
stored again yet is not taken for one that does not exist.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.definitions import interning, lanes, signedblobs
from duepoint.runs import run
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

_RECORDS_TOGETHER = 200
#: The field of the mark; every set's has a slash.
_COMPLETE = "complete"


@dataclass(eq=False)
class Sets:
    """Stores and reads the sets."""

    index: index.Index
    layouts: layouts.Layouts
    numbering: interning.Numbering
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs

    async def read(self, namespace: str, name: str) -> setrecord.SetRecord | None:
        """The stored record; None if there is none, or if it was not written by us."""
        return (await self._read(namespace, name))[0]

    async def find(self, namespace: str, name: str) -> setrecord.SetRecord | None:
        """The set; None if no such set exists.

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
        """Every set, by namespace and name."""
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
            log.warning("record of a set not used", set=place, error=str(unknown))
            return None

    async def store(self, record: setrecord.SetRecord, blob: bytes, epoch: messages.Epoch) -> None:
        """Every shard knows the set, and its record is there; may be repeated.

        Args:
            blob: what ``record.target`` is the digest of; empty where there is no target.

        Raises LayoutChanged where the index was resharded meanwhile, Fenced where a newer leader
        has been here.
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
        """Every shard knows the set; its record stays as it is."""
        shards = sharding.all_shards(self.index.known_layout())
        await asyncio.gather(*(self._store_entry(shard, record, blob, epoch) for shard in shards))

    async def forget(self, record: setrecord.SetRecord, epoch: messages.Epoch) -> None:
        """The set's record is gone; its entries in the shards are others' to remove."""
        await self._store_field(record.place, b"", epoch)

    async def _store_field(self, field: str, value: bytes, epoch: messages.Epoch) -> None:
        call = self.index.call("setrecord", None, epoch=epoch)
        call.put(place=field.encode(), record=value)
        await self.index.scripts.run(call)

    async def count_again(
        self, record: setrecord.SetRecord, lost: run.SetTally, epoch: messages.Epoch
    ) -> None:
        """Add what the shards have lost of how slots of its members ended; may be repeated.

        Nothing happens where slots end meanwhile: the caller counts again.
        """
        shard = sharding.own_shards(self.index.known_layout())[0]
        field = lanes.tally_field(record.identity)
        ((stored,),) = await self.index.read(
            "read how members ended", ("HMGET", self.index.shard(shard).meta, field)
        )
        wanted = run.read_tally(stored).plus(lost).text
        tally = {"field": field, "stood": (stored or b"").decode(), "wanted": wanted}
        await self._store_entry(shard, record, b"", epoch, tally=tally)

    async def _store_entry(
        self,
        shard: messages.ShardId,
        record: setrecord.SetRecord,
        blob: bytes,
        epoch: messages.Epoch,
        **more: object,
    ) -> None:
        text = lanes.text_of(record.identity)
        try:
            lane = (await self.numbering.intern(shard, [text], epoch))[text]
            call = self.index.call(
                "setentry",
                shard,
                self.index.shard(shard).lane(lane),
                epoch=epoch,
                incarnation=self.interned.incarnation(shard),
                lane=str(lane),
                entry=setrecord.entry_text(record),
                **more,
            )
            blobs = [record.target.encode(), self.signed_blobs.pack(blob)] if blob else []
            call.put(blobs=call.run(blobs))
            await self.index.pipelined_durably.run(call)
        except queue_errors.LayoutChanged:
            self.interned.forget(shard)
            if sharding.layout_of(shard) == self.index.known_layout().number:
                raise
