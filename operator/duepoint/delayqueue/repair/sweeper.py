"""Walks over a shard: arms lost chains again, and removes blobs and texts that nothing uses.

The sweeper reads every definition, a few buckets at a time. An armed one has a chain, which waits
or belongs to a claim; if it does neither, the sweeper arms it again at the time of ``due_of``. That
is never "now", which would lose the slots since the loss, and never before a slot that is an
occurrence already, which would run twice. On the way the sweeper notes which blobs and texts the
definitions name, and collects the others. Reference counts would cost every write; instead a fenced
script marks unused ones, and removes those that have been marked for a day. Storing a definition
also stores the blobs and texts that it names and takes off their marks. The sweeper removes nothing
from a shard with a definition that it cannot read, nor while the queue is resharded: it does not
know then what is in use.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import codec, lanes, reading
from duepoint.delayqueue.definitions.kinds import Kind
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

#: How long a blob must be unused before it is removed: as long as a delivery may be retried.
PATIENCE_SECONDS = 86_400.0
#: Blobs are read with their contents, some kilobytes each.
_BLOBS_TOGETHER = 50
_NAMES_TOGETHER = 200
_TEXTS_TOGETHER = 300
_BLOB_NAME, _KIND_NAME = 24, 8


@dataclass(slots=True)
class Used:
    """The texts and blobs that the definitions of a shard name.

    Attributes:
        kinds, targets: their digests.
        is_known: whether every definition could be read.
    """

    kinds: set[bytes] = field(default_factory=set)
    targets: set[bytes] = field(default_factory=set)
    is_known: bool = True


class _Values(NamedTuple):
    """A hash of values by digest; ``length``: of a digest; ``together``: how many to read."""

    key: str
    length: int
    together: int


DueOf = Callable[[definitions.Definition], int | None]

#: Populations whose buckets are checked for existence together: most have few in a shard.
_POPULATIONS_TOGETHER = 8
_BUCKETS_TOGETHER = 32
#: Chains in one reading command: less than 1 ms of the server's time.
_CHAINS_TOGETHER = 1_000
#: Lost chains in one script, and in one turn of the event loop.
_ARMED_TOGETHER = 250
_ID_LENGTH = 8
_TIMED = (points.PointKind.RETRY, points.PointKind.PLANNED, points.PointKind.QUEUED)

T = TypeVar("T")
#: Lane -> chain -> id.
_Chains = dict[str, dict[bytes, points.ScheduleId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One step of a walk.

    Attributes:
        looked_at: definitions that were read.
        armed: lost chains that were armed again.
        marked: blobs that were found unused for the first time.
        blobs, texts: removed blobs, and removed texts of kinds.
    """

    looked_at: int = 0
    armed: int = 0
    marked: int = 0
    blobs: int = 0
    texts: int = 0


@dataclass(eq=False)
class Sweeper:
    """Walks over shards."""

    index: index.Index
    reader: reading.DefinitionReader

    async def sweep(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        *,
        due_of: DueOf,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> AsyncIterator[Swept]:
        """Walk over a shard once, in small steps: the caller rests between them.

        Args:
            due_of: returns the due for a definition's lost chain; None = it has no slot left.
            patience_seconds: how long a text must be unused before it is removed.
        """
        if sharding.layout_of(shard) != self.index.known_layout().number:
            return  # it is being emptied: missing chains have moved on
        fields = ("HMGET", self.index.shard(shard).meta, "layout", "incarnation")
        (meta,) = await self.index.read("sweep", fields)
        self.reader.check_meta(shard, meta)
        used = Used()
        populations = sorted(await self.reader.populations(shard))
        for some in _parts(populations, _POPULATIONS_TOGETHER):
            buckets = self.index.buckets_of_populations(shard, some)
            yield Swept()
            for few in _parts(await self.index.existing("sweep", buckets), _BUCKETS_TOGETHER):
                found = await self.index.read("sweep", *(("HGETALL", bucket) for bucket in few))
                kinds = await self._kinds(shard, found)
                chains: _Chains = {}
                for records in found:
                    _note(records, kinds, chains, used)
                armed = await self._arm_lost(shard, chains, epoch, due_of)
                yield Swept(looked_at=sum(map(len, found)), armed=armed)
        if used.is_known and self.index.known_layout().former is None:
            async for removed in self._remove_unused(shard, epoch, used, patience_seconds):
                yield removed

    async def _kinds(
        self, shard: messages.ShardId, found: Iterable[Mapping[bytes, bytes]]
    ) -> dict[bytes, Kind]:
        digests = {record[codec.KIND] for records in found for record in records.values()}
        return await self.reader.kinds.read(shard, digests)

    async def _arm_lost(
        self, shard: messages.ShardId, chains: _Chains, epoch: messages.Epoch, due_of: DueOf
    ) -> int:
        """Arm the lost chains among these again; return how many."""
        armed = 0
        async for lane, lost in self._lost(shard, chains):
            dues = await self._dues(shard, lost, due_of)
            armed += await self._arm(shard, lane, dues, epoch)
        return armed

    async def _lost(
        self, shard: messages.ShardId, chains: _Chains
    ) -> AsyncIterator[tuple[str, list[points.ScheduleId]]]:
        """Yield the schedules whose chain neither waits nor belongs to a claim, by lane."""
        names = self.index.shard(shard)
        asked = [(lane, some) for lane in chains for some in _parts(chains[lane], _CHAINS_TOGETHER)]
        replies = await self.index.read_many(
            "sweep chains", [("ZMSCORE", names.lane(lane), *some) for lane, some in asked]
        )
        limit = points.DUE_LIMIT_US
        claimed = {score for reply in replies for score in reply if score is not None} - {math.inf}
        ends = [int(score) - limit for score in claimed if score >= limit]
        counts = await self.index.read_many(
            "sweep claims", [("ZCOUNT", names.claims, end, end) for end in ends]
        )
        gone = {None, *(end + limit for end, count in zip(ends, counts, strict=True) if not count)}
        for (lane, some), reply in zip(asked, replies, strict=True):
            lost = [chain for chain, score in zip(some, reply, strict=True) if score in gone]
            for few in _parts(lost, _ARMED_TOGETHER):
                yield lane, [chains[lane][chain] for chain in few]

    async def _dues(
        self, shard: messages.ShardId, ids: list[points.ScheduleId], due_of: DueOf
    ) -> list[tuple[definitions.Definition, int]]:
        """Return definitions and the dues for their chains: after all slots handed over already."""
        known = await self.reader.read_definitions(shard, ids)
        heads = [
            (one.id, one.id + one.timing_version + bytes([kind]))
            for one in known.values()
            for kind in _TIMED
        ]
        replies = await self.index.read_many(
            "sweep chains",
            [
                ("ZRANGE", self.index.shard(shard).occ, b"[" + head + b"\xff" * 8, b"[" + head,
                 "BYLEX", "REV", "LIMIT", 0, 1)
                for _, head in heads
            ],
        )  # fmt: skip
        after_us = {one.id: one.not_before_us for one in known.values()}
        for (schedule_id, _), newest in zip(heads, replies, strict=True):
            for member in newest:
                after_us[schedule_id] = max(after_us[schedule_id], points.slot_of(member))
        dues = (
            (one, due_of(msgspec.structs.replace(one, not_before_us=after_us[one.id])))
            for one in known.values()
        )
        return [(one, due_us) for one, due_us in dues if due_us is not None]

    async def _arm(
        self,
        shard: messages.ShardId,
        lane: str,
        dues: list[tuple[definitions.Definition, int]],
        epoch: messages.Epoch,
    ) -> int:
        if not dues:
            return 0
        names = self.index.shard(shard)
        call = self.index.call("rearm", shard, epoch=epoch)
        chains = [
            (
                lane,
                call.key(names.lane(lane)),
                call.key(names.bucket_of(known.id, self.index.buckets)),
                call.position(known.id),
                call.position(known.id + known.timing_version),
                due_us,
            )
            for known, due_us in dues
        ]
        call.put(chains=chains)
        return int(await self.index.scripts.run(call))

    # -- what is not used any more --------------------------------------------------------------

    async def _remove_unused(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        used: Used,
        patience_seconds: float,
    ) -> AsyncIterator[Swept]:
        """Remove texts and blobs that no definition names any more."""
        names, of_sets = self.index.shard(shard), await self._targets_of_sets(shard)
        patience = int(patience_seconds * 1e6)
        texts = _Values(names.texts, _KIND_NAME, _TEXTS_TOGETHER)
        async for _, gone in self._collect(shard, epoch, texts, used.kinds, patience):
            yield Swept(texts=gone)
        blobs, wanted = _Values(names.blobs, _BLOB_NAME, _BLOBS_TOGETHER), used.targets | of_sets
        async for marked, gone in self._collect(shard, epoch, blobs, wanted, patience):
            yield Swept(marked=marked, blobs=gone)

    async def _collect(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        values: _Values,
        wanted: set[bytes],
        patience: int,
    ) -> AsyncIterator[tuple[int, int]]:
        """Yield how many values each step marks and removes; ``wanted``: digests in use."""
        async for fields in self._scan(values.key, values.together):
            unused = sorted({name for name in fields if len(name) == values.length} - wanted)
            if unused:
                call = self.index.call("collect", shard, values.key, epoch=epoch, patience=patience)
                call.put(unused=call.run(unused))
                newly, gone = await self.index.scripts.run(call)
                yield int(newly), int(gone)

    async def _scan(self, key: str, count: int) -> AsyncIterator[dict[bytes, bytes]]:
        """Yield the fields of a hash, some at a time; a small one whole."""
        cursor = 0
        while True:
            scan = ("HSCAN", key, cursor, "COUNT", count)
            ((cursor, found),) = await self.index.read("read stored values", scan)
            listed = list(found.items())
            for first in range(0, max(1, len(listed)), _NAMES_TOGETHER):
                yield dict(listed[first : first + _NAMES_TOGETHER])
            if int(cursor) == 0:
                return

    async def _targets_of_sets(self, shard: messages.ShardId) -> set[bytes]:
        """Return the targets of the shard's sets."""
        of_sets = list(filter(lanes.is_of_set, await self.reader.lanes(shard)))
        replies = await self.index.read_many(
            "read the targets of sets",
            [("HMGET", self.index.shard(shard).meta, lane) for lane in of_sets],
        )
        return {setrecord.parse_entry(entry).target.encode() for (entry,) in replies if entry}


def _note(
    records: Mapping[bytes, bytes], kinds: Mapping[bytes, Kind], chains: _Chains, used: Used
) -> None:
    """Note what the definitions of a bucket name, and the chains that they should have."""
    for schedule_id, record in records.items():
        try:
            digest = codec.kind(record)
        except codec.UnknownRecord:
            used.is_known = False
            continue
        used.kinds.add(digest)
        kind = kinds.get(digest)
        if kind is None:
            used.is_known = False
            continue
        used.targets.add(kind.target.encode())
        if record[:2] == codec.ARMED and len(schedule_id) == _ID_LENGTH:
            chain = schedule_id + record[codec.VERSION]
            chains.setdefault(kind.lane, {})[chain] = points.ScheduleId(schedule_id)


def _parts(listed: Iterable[T], count: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most this many."""
    rest = iter(listed)
    while part := list(itertools.islice(rest, count)):
        yield part
