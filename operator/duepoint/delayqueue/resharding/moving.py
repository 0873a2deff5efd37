"""Moves schedules from a former shard to their new ones: in batches, one at a time, by the leader.

A pass goes over all buckets, then over the dead letters. A batch moves in three steps. ``depart``
makes its points unclaimable and notes the batch; all records stay in place and readable. ``arrive``
stores the batch in the new shards, part by part, each part once. Then ``depart`` removes it from
the former shard. All steps check the leader's term. A mover that dies leaves its batch behind, and
the next one finishes that first. A schedule moves whole; if a worker holds any point of it, it is
left out until another pass. Unreadable records are left to the comparison with the objects.

A record means the same in every shard; the texts and blobs that it names move with it.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import structlog

from duepoint import faults, settings, telemetry
from duepoint.delayqueue import deadletters, index, messages, sharding
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.definitions import codec, kinds, lanes, reading
from duepoint.delayqueue.wire import scripting
from duepoint.faults import FaultPoint
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

#: Most schedules of a batch, and their most occurrences: some 2 ms of the server's time.
_MOST_SCHEDULES = 200
_MOST_OCCURRENCES = 500
#: Most schedules and occurrences in one part of a batch.
_PART = 200
#: Buckets whose existence is checked together, and that are read together.
_BUCKETS_LOOKED_FOR, _BUCKETS = 512, 16
_SCAN_COUNT = 500
_LETTERS_PER_STEP = 100
#: No lease ends later than this from now.
LATEST_US = int(2 * settings.LONGEST_LEASE_SECONDS * 1_000_000)
_ID_LENGTH = 8

ListedT = TypeVar("ListedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one step of a pass did.

    Attributes:
        moved: schedules that have moved.
        left_out: schedules that a worker holds; they move in a later pass.
        damaged: schedules that could not be read, or had lost their chain: the caller must compare
            them with the objects.
    """

    moved: int = 0
    left_out: int = 0
    damaged: int = 0


class _Here(NamedTuple):
    """A schedule to be moved."""

    lane: str
    bucket: str
    id: points.ScheduleId


class _Traveller(NamedTuple):
    """A schedule of a batch.

    Attributes:
        record: its packed definition.
        due: the due of its chain as text; empty if no chain moves with it.
        occurrences: members with their dues as text.
    """

    lane: str
    id: points.ScheduleId
    record: bytes
    due: bytes
    occurrences: Sequence[tuple[bytes, bytes]]


#: A schedule in a part of a batch, whether this is its first part, and its occurrences there.
_Piece = tuple[_Traveller, bool, Sequence[tuple[bytes, bytes]]]


@dataclass(eq=False)
class Mover:
    """Moves the contents of a draining shard to the new shards."""

    index: index.Index
    reader: reading.DefinitionReader
    letters: deadletters.DeadLetters

    async def passing(
        self, shard: messages.ShardId, epoch: messages.Epoch, *, hold_seconds: float = 0.0
    ) -> AsyncIterator[Moved]:
        """Go once over a former shard, in bounded steps: the caller rests between them.

        Schedules that no worker holds move to their new shards. A schedule is claimable in one of
        the two at any time, except while its own batch is moving. With a hold, no worker claims
        from the shard for that long.
        """
        call = self.index.call("drain", shard, epoch=epoch, state="draining")
        if hold_seconds:
            call.put(hold=int(hold_seconds * 1_000_000))
        if left_behind := await self.index.scripts.run(call):
            batch, taken = left_behind
            damaged = await self.bring(shard, batch.decode(), taken, epoch)
            yield Moved(moved=len(taken), damaged=damaged)
        buckets = await self.buckets(shard)
        async for found, unreadable in self._scan(shard, buckets):
            yield Moved(damaged=unreadable)
            for some in _parts(found, _MOST_SCHEDULES):
                yield await self._send(shard, epoch, some)
        (lanes,) = await self.letters.lanes_of([shard])
        for lane in lanes:
            while await self._move_letters(shard, lane, epoch):
                yield Moved()

    async def buckets(self, shard: messages.ShardId) -> list[str]:
        """Return all buckets of the shard that may hold definitions."""
        return self.index.buckets_of_populations(shard, await self.reader.populations(shard))

    async def is_any_definition_left(self, shard: messages.ShardId) -> bool:
        """Whether a readable definition is left; the operator writes the others anew."""
        async for found, _ in self._scan(shard, await self.buckets(shard)):
            if found:
                return True
        return False

    async def _scan(
        self, shard: messages.ShardId, buckets: Sequence[str]
    ) -> AsyncIterator[tuple[list[_Here], int]]:
        """Yield the schedules of these buckets, some at a time, and how many are unreadable."""
        names, of_population = self.index.shard(shard), self.index.buckets
        for some in _parts(buckets, _BUCKETS_LOOKED_FOR):
            for few in _parts(await self.index.existing("find what to move", some), _BUCKETS):
                scans = dict.fromkeys(few, 0)
                while scans:
                    replies = await self.index.read(
                        "read definitions to move",
                        *(("HSCAN", name, at, "COUNT", _SCAN_COUNT) for name, at in scans.items()),
                    )
                    known = await self.reader.kinds.read(
                        shard,
                        {each[codec.KIND] for _, listed in replies for each in listed.values()},
                    )
                    found: list[_Here] = []
                    unreadable = 0
                    for bucket, (_, records) in zip(scans, replies, strict=True):
                        for field, record in records.items():
                            schedule_id = points.ScheduleId(field)
                            is_ours = len(field) == _ID_LENGTH and bucket == names.bucket_of(
                                schedule_id, of_population
                            )
                            kind = known.get(_kind(record))
                            if is_ours and kind is not None:
                                found.append(_Here(kind.lane, bucket, schedule_id))
                            else:
                                unreadable += 1
                    if unreadable:
                        telemetry.unreadable_total.labels("definition").inc(unreadable)
                        log.warning("definitions cannot be read", shard=shard, count=unreadable)
                    yield found, unreadable
                    scans = {
                        name: int(at)
                        for name, (at, _) in zip(scans, replies, strict=True)
                        if int(at)
                    }

    async def _send(
        self, shard: messages.ShardId, epoch: messages.Epoch, leaving: Sequence[_Here]
    ) -> Moved:
        """Move these schedules to their new shards, except those that a worker holds."""
        moved = left = damaged = 0
        leaving = sorted(leaving)
        while leaving:
            call = self._departure(shard, epoch, leaving)
            left_out, rest, batch, taken = await self.index.scripts.run(call)
            left += left_out
            if taken:
                damaged += await self.bring(shard, batch.decode(), taken, epoch)
                moved += len(taken)
            leaving = leaving[len(leaving) - rest :]
        return Moved(moved=moved, left_out=left, damaged=damaged)

    def _departure(
        self, shard: messages.ShardId, epoch: messages.Epoch, leaving: Sequence[_Here]
    ) -> scripting.ScriptCall:
        names = self.index.shard(shard)
        call = self.index.call("depart", shard, epoch=epoch, batch=os.urandom(8).hex())
        schedules = [
            (
                lane,
                call.key(names.lane(lane)),
                call.key(bucket),
                *call.run(one.id for one in some),
            )
            for (lane, bucket), some in itertools.groupby(leaving, operator.itemgetter(0, 1))
        ]
        call.put(schedules=schedules, most=_MOST_OCCURRENCES, latest=LATEST_US)
        return call

    # -- a batch on its way ------------------------------------------------------------------------

    async def bring(
        self,
        shard: messages.ShardId,
        batch: str,
        taken: Sequence[Sequence[Any]],
        epoch: messages.Epoch,
    ) -> int:
        """Store a batch in its new shards, remove it from the former one; return the damaged count.

        A definition whose kind's text is lost arrives nowhere.
        """
        (meta,) = await self.index.read(
            "read a shard's life", ("HMGET", self.index.shard(shard).meta, "layout", "incarnation")
        )
        self.reader.check_meta(shard, meta)
        layout = self.index.known_layout()
        if layout.number <= sharding.layout_of(shard):
            raise queue_errors.LayoutChanged(f"shard {shard} is of the newest layout")
        travellers = [
            _Traveller(
                lane.decode(), id_, record, due, list(zip(listed[::2], listed[1::2], strict=True))
            )
            for lane, id_, record, due, listed in taken
        ]
        texts = await self._kinds_of(shard, batch, travellers)
        by_home: dict[messages.ShardId, list[_Traveller]] = {}
        for traveller in travellers:
            if _kind(traveller.record) in texts:
                by_home.setdefault(sharding.home(traveller.id, layout), []).append(traveller)
        for home, listed in by_home.items():
            await faults.reach(FaultPoint.BEFORE_BATCH_IMPORTED)
            await self._arrive(shard, home, batch, listed, texts, epoch=epoch)
        await faults.reach(FaultPoint.AFTER_BATCH_IMPORTED)
        await self._forget(shard, batch, [one.id for one in travellers], epoch)
        lost = len(travellers) - sum(map(len, by_home.values()))
        if lost:
            telemetry.unreadable_total.labels("text").inc(lost)
            log.warning("texts of definitions are lost", shard=shard, definitions=lost)
        unarmed = (one for one in travellers if one.record[:2] == codec.ARMED and not one.due)
        return lost + sum(1 for _ in unarmed)

    async def _kinds_of(
        self, shard: messages.ShardId, batch: str, travellers: Collection[_Traveller]
    ) -> dict[bytes, bytes]:
        """Return the texts of the kinds of a batch, by digest, without lost ones."""
        names, digests = self.index.shard(shard), sorted({_kind(one.record) for one in travellers})
        texts, noted = await self.index.read(
            "read what is on its way",
            ("HMGET", names.texts, *digests),
            ("HGET", names.leases, "batch"),
        )
        known = {each: text for each, text in zip(digests, texts, strict=True) if text is not None}
        if len(known) < len(digests) and (noted is None or batch.encode() not in noted[:20]):
            # A server that rolled back has neither the texts nor the batch.
            raise queue_errors.LayoutChanged(f"shard {shard} was created anew")
        return known

    async def _arrive(
        self,
        shard: messages.ShardId,
        home: messages.ShardId,
        batch: str,
        travellers: Sequence[_Traveller],
        known: Mapping[bytes, bytes],
        *,
        epoch: messages.Epoch,
    ) -> None:
        texts = {digest: known[digest] for digest in map(_kind, (t.record for t in travellers))}
        entries = await self._set_entries(shard, {one.lane for one in travellers})
        blobs = await self._blobs(shard, texts.values(), entries.values())
        sets = [(lane, entry.decode(errors="replace")) for lane, entry in entries.items()]
        for number, pieces in enumerate(_pieces(travellers), start=1):
            members = [member for *_, listed in pieces for member, _ in listed]
            records = dict(zip(members, await self._occurrences(shard, members), strict=True))
            call = self.index.call(
                "arrive",
                home,
                epoch=epoch,
                batch=batch,
                part=number,
            )
            call.put(
                kinds=call.run(part for pair in texts.items() for part in pair),
                blobs=call.run(part for pair in blobs.items() for part in pair),
            )
            call.put(
                sets=sets, schedules=[self._placed(call, home, one, records) for one in pieces]
            )
            # The next step removes it from the former shard: wait until a replica, if any, has it.
            await self.index.pipelined_durably.run(call)

    def _placed(
        self,
        call: scripting.ScriptCall,
        home: messages.ShardId,
        piece: _Piece,
        records: Mapping[bytes, bytes],
    ) -> tuple[object, ...]:
        """Return a schedule as the script takes it."""
        (traveller, is_first, occurrences), names = piece, self.index.shard(home)
        return (
            traveller.lane,
            call.key(names.lane(traveller.lane)),
            call.key(names.bucket_of(traveller.id, self.index.buckets)),
            call.position(traveller.id),
            call.position(traveller.record) if is_first else 0,
            int(traveller.due) if traveller.due else False,
            *call.run(
                part for member, due in occurrences for part in (member, due, records[member])
            ),
        )

    async def _occurrences(
        self, shard: messages.ShardId, members: Sequence[bytes]
    ) -> Sequence[bytes]:
        """Return the records of these occurrences."""
        if not members:
            return ()
        (found,) = await self.index.read(
            "read occurrences to move", ("HMGET", self.index.shard(shard).occrec, *members)
        )
        return [record or b"" for record in found]

    async def _set_entries(
        self, shard: messages.ShardId, among: Collection[str]
    ) -> dict[str, bytes]:
        """Return the former shard's entries of the sets among these lanes."""
        of_sets = list(filter(lanes.is_of_set, among))
        if not of_sets:
            return {}
        (found,) = await self.index.read(
            "read what a shard knows of sets",
            ("HMGET", self.index.shard(shard).meta, *of_sets),
        )
        return {
            lane: entry for lane, entry in zip(of_sets, found, strict=True) if entry is not None
        }

    async def _blobs(
        self, shard: messages.ShardId, texts: Iterable[bytes], entries: Iterable[bytes]
    ) -> dict[bytes, bytes]:
        """Return the digests and signed contents that the new shard needs."""
        named = {kinds.parse(text).target.encode() for text in texts}
        named |= {setrecord.parse_entry(entry).target.encode() for entry in entries}
        named.discard(b"")
        if not named:
            return {}
        digests = sorted(named)
        (found,) = await self.index.read(
            "read blobs", ("HMGET", self.index.shard(shard).blobs, *digests)
        )
        return {
            digest: blob for digest, blob in zip(digests, found, strict=True) if blob is not None
        }

    async def _forget(
        self,
        shard: messages.ShardId,
        batch: str,
        ids: Collection[points.ScheduleId],
        epoch: messages.Epoch,
    ) -> None:
        call = self.index.call("depart", shard, epoch=epoch, arrived=batch, schedules=[], most=0)
        buckets = [
            (call.key(bucket), *call.run(some))
            for bucket, some in self.reader.by_bucket(shard, ids).items()
        ]
        call.put(buckets=buckets)
        await self.index.scripts.run(call)

    # -- dead letters ------------------------------------------------------------------------------

    async def _move_letters(
        self, shard: messages.ShardId, lane: str, epoch: messages.Epoch
    ) -> bool:
        """Move some letters of a lane to a new shard; return whether there may be more."""
        log = self.index.shard(shard).log(lane)
        (found,) = await self.index.read(
            "read dead letters", ("XRANGE", log, "-", "+", "COUNT", _LETTERS_PER_STEP)
        )
        if not found:
            return False
        shards = sharding.own_shards(self.index.known_layout())
        home = shards[sharding.index_of(shard) % len(shards)]
        call = self.index.call("bury", home, epoch=epoch)
        letters = []
        for entry_id, raw in found:
            fields = scripting.fields(raw)
            del fields[b"taken"]
            position = call.run(part for pair in fields.items() for part in pair)
            letters.append((entry_id.decode(), *position))
        call.put(log=self.letters.put_log(call, home, lane), letters=letters)
        await self.index.pipelined_durably.run(call)
        await self.index.read("forget dead letters", ("XDEL", log, *(each for each, _ in found)))
        return len(found) == _LETTERS_PER_STEP


def _kind(record: bytes) -> bytes:
    """Return the digest of a record's kind; empty if the record is unreadable."""
    try:
        return codec.kind(record)
    except codec.UnknownRecord:
        return b""


def _parts(listed: Sequence[ListedT], most: int) -> Iterator[Sequence[ListedT]]:
    for first in range(0, len(listed), most):
        yield listed[first : first + most]


def _pieces(travellers: Iterable[_Traveller]) -> Iterator[list[_Piece]]:
    """Yield the contents of each part of a batch; the same for the same batch in any process."""
    part: list[_Piece] = []
    room = _PART
    for traveller in travellers:
        rest, is_first = traveller.occurrences, True
        while is_first or rest:
            part.append((traveller, is_first, rest[:room]))
            room, rest, is_first = room - 1 - len(rest[:room]), rest[room:], False
            if room <= 0:
                yield part
                part, room = [], _PART
    if part:
        yield part
