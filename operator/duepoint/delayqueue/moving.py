"""Moves schedules from a former shard to their new ones, one batch at a time, for the leader.

A pass goes over all buckets, then over the dead letters. A batch moves in three steps. ``depart``
makes its points unclaimable and notes the batch; all records stay in place and readable. ``put``
stores the batch in the new shards, in each once. ``drop`` removes it from the former shard. All
steps check the leader's term. A mover that dies leaves its batch behind, and the next one finishes
that first. A schedule moves whole; if a worker holds any point of it, it is left out until another
pass. Unreadable records are left to the comparison with the objects.

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
from duepoint.delayqueue.definitions import codec, kinds, lanes, putting, reading
from duepoint.delayqueue.wire import scripting
from duepoint.faults import FaultPoint
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

log = structlog.get_logger(__name__)

#: Most schedules of a batch, and their most points: some 2 ms of the server's time.
_MOST_SCHEDULES = 200
_MOST_POINTS = 700
#: Buckets whose existence is checked together, and that are read together.
_BUCKETS_LOOKED_FOR, _BUCKETS = 512, 16
_LETTERS_PER_STEP = 100
#: No lease ends later than this from now.
_LATEST_US = int(2 * settings.LONGEST_LEASE_SECONDS * 1_000_000)
_ID_LENGTH = 8

ListedT = TypeVar("ListedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of one step of a pass.

    Attributes:
        moved: schedules that have moved.
        left_out: schedules that a worker holds; they move in a later pass.
        damaged: schedules that could not be read, or had lost their chain: the caller must compare
            them with the objects.
    """

    moved: int = 0
    left_out: int = 0
    damaged: int = 0


class _Candidate(NamedTuple):
    """A schedule of the former shard that moves unless a worker holds it."""

    lane: str
    bucket: str
    id: points.ScheduleId


class _Traveller(NamedTuple):
    """A schedule on its way, as it was taken out of the former shard.

    Attributes:
        record: its packed definition.
        points: its members and their dues as text; a chain without a due is not among them.
    """

    lane: str
    id: points.ScheduleId
    record: bytes
    points: Mapping[bytes, bytes]

    @property
    def chain(self) -> bytes:
        return self.id + self.record[codec.VERSION]


@dataclass(eq=False)
class Mover:
    """Moves the contents of a draining shard to the new shards."""

    index: index.Index
    reader: reading.DefinitionReader
    writer: putting.RowWriter
    letters: deadletters.DeadLetters

    async def change_state(
        self, shard: messages.ShardId, state: str, epoch: messages.Epoch, *, hold_us: int = 0
    ) -> None:
        """Make a shard ``open``, ``draining`` or ``closed``; hold its points back for a while."""
        call = self.index.call("init", shard, epoch=epoch, becomes=state, hold=hold_us)
        await self.index.scripts.run(call)

    async def buckets(self, shard: messages.ShardId) -> list[str]:
        """Return all buckets of the shard that may hold definitions."""
        return self.index.buckets_of_populations(shard, await self.reader.populations(shard))

    async def move_once(
        self, shard: messages.ShardId, epoch: messages.Epoch, *, hold_seconds: float = 0.0
    ) -> AsyncIterator[Moved]:
        """Move all that can leave a former shard now, in steps: the caller rests between them.

        Schedules that no worker holds move to their new shards. A schedule is claimable in one of
        the two at any time, except while its own batch is moving. With a hold, no worker claims
        from the shard for that long.
        """
        self._check_former(shard)
        await self.change_state(shard, "draining", epoch, hold_us=int(hold_seconds * 1_000_000))
        yield await self._send(shard, epoch, ())  # what a dead mover left behind
        for some in _parts(await self.buckets(shard), _BUCKETS_LOOKED_FOR):
            for few in _parts(await self.index.existing("find schedules to move", some), _BUCKETS):
                found, unreadable = await self._found(shard, few)
                yield Moved(damaged=unreadable)
                for batch in _parts(found, _MOST_SCHEDULES):
                    yield await self._send(shard, epoch, batch)
        (lanes,) = await self.letters.lanes_of([shard])
        for lane in lanes:
            while await self._move_letters(shard, lane, epoch):
                yield Moved()

    async def _found(
        self, shard: messages.ShardId, buckets: Sequence[str]
    ) -> tuple[list[_Candidate], int]:
        """Return the schedules of these buckets, and how many are unreadable."""
        names = self.index.shard(shard)
        replies = await self.index.read(
            "read definitions to move", *(("HGETALL", bucket) for bucket in buckets)
        )
        known = await self.reader.kinds.read(
            shard, {record[codec.KIND] for records in replies for record in records.values()}
        )
        found = [
            _Candidate(kind.lane, bucket, points.ScheduleId(field))
            for bucket, records in zip(buckets, replies, strict=True)
            for field, record in records.items()
            if len(field) == _ID_LENGTH
            and bucket == names.bucket_of(points.ScheduleId(field), self.index.buckets)
            and (kind := known.get(_kind(record))) is not None
        ]
        unreadable = sum(map(len, replies)) - len(found)
        if unreadable:
            telemetry.unreadable_total.labels("definition").inc(unreadable)
            log.warning("definitions cannot be read", shard=shard, count=unreadable)
        return found, unreadable

    def _check_former(self, shard: messages.ShardId) -> None:
        """Raise LayoutChanged if the shard is in use: the index was emptied and made anew."""
        if self.index.known_layout().number <= sharding.layout_of(shard):
            raise queue_errors.LayoutChanged(f"shard {shard} is of the newest layout")

    async def _send(
        self, shard: messages.ShardId, epoch: messages.Epoch, leaving: Sequence[_Candidate]
    ) -> Moved:
        """Finish the batch on its way; then move these schedules unless a worker holds them."""
        moved = left = damaged = 0
        while True:
            self._check_former(shard)
            call = self.index.call("depart", shard, epoch=epoch, batch=os.urandom(8).hex())
            lane_key = self.index.shard(shard).lane
            schedules = [
                (
                    one.lane,
                    call.key(lane_key(one.lane)),
                    call.key(one.bucket),
                    call.position(one.id),
                )
                for one in leaving
            ]
            call.put(schedules=schedules, most=_MOST_POINTS, latest=_LATEST_US)
            tried, left_out, batch, taken = await self.index.scripts.run(call)
            left += left_out
            leaving = leaving[tried:]
            if taken:
                damaged += await self.bring(shard, batch.decode(), taken, epoch)
                moved += len(taken)
            elif not leaving:
                return Moved(moved=moved, left_out=left, damaged=damaged)

    async def bring(
        self,
        shard: messages.ShardId,
        batch: str,
        taken: Sequence[Sequence[Any]],
        epoch: messages.Epoch,
    ) -> int:
        """Store a batch in its new shards, remove it from the former one; return the damaged count.

        A definition whose kind's text is lost is only removed: no shard could read it.
        """
        layout = self.index.known_layout()
        travellers = [
            _Traveller(lane.decode(), id_, record, scripting.fields(due_of))
            for lane, id_, record, due_of in taken
        ]
        entries = await self._set_entries(shard, {one.lane for one in travellers})
        known = await self._kinds_of(shard, travellers, entries)
        by_home: dict[messages.ShardId, list[_Traveller]] = {}
        for one in travellers:
            if _kind(one.record) in known:
                by_home.setdefault(sharding.home(one.id, layout), []).append(one)
        moved = {"batch": batch, "from": f"arrived{sharding.index_of(shard)}"}
        for home, listed in by_home.items():
            await faults.reach(FaultPoint.BEFORE_BATCH_IMPORTED)
            states = await self._states(shard, listed)
            rows = [(each.lane, self._arrival(each, known, states)) for each in listed]
            await self._write(home, rows, entries, epoch=epoch, moved=moved)
        await faults.reach(FaultPoint.AFTER_BATCH_IMPORTED)
        gone = [
            (each.lane, putting.Task(self._row(each), None, putting.NO_DUE, b""))
            for each in travellers
        ]
        await self._write(shard, gone, {}, epoch=epoch, moved=moved, drops=True)
        lost = len(travellers) - sum(map(len, by_home.values()))
        if lost:
            telemetry.unreadable_total.labels("text").inc(lost)
        unarmed = (
            one
            for one in travellers
            if one.record[:2] == codec.ARMED and one.chain not in one.points
        )
        return lost + sum(1 for _ in unarmed)

    def _row(self, one: _Traveller) -> putting.Row:
        return putting.row_of(0, one.id, self.index.buckets)

    def _arrival(
        self,
        one: _Traveller,
        known: Mapping[bytes, putting.Kind],
        states: Mapping[bytes, bytes],
    ) -> putting.Task:
        """Return the task that stores a schedule in its new shard, unless it is there already."""
        values = [
            value
            for member, due in one.points.items()
            if member != one.chain
            for value in (due, member, states[member])
        ]
        return putting.Task(
            self._row(one),
            known[_kind(one.record)],
            one.points.get(one.chain, putting.NO_DUE),
            b"",
            record=one.record,
            options={"open": values} if values else {},
        )

    async def _write(
        self,
        shard: messages.ShardId,
        rows: Iterable[tuple[str, putting.Task]],
        entries: Mapping[str, bytes],
        *,
        epoch: messages.Epoch,
        drops: bool = False,
        **named: object,
    ) -> None:
        """Store or remove the rows of a batch, each with its lane, in one script."""
        call = self.index.call("drop", None, epoch=epoch, **named)
        parts = []
        for name, listed in itertools.groupby(sorted(rows, key=_by_lane), operator.itemgetter(0)):
            lane = lanes.Lane(name, None if lanes.is_of_set(name) else epoch, drops=drops)
            sent = putting.Sent(shard, [task for _, task in listed])
            part = self.writer.part(call, lane, sent)
            if name in entries:
                part["entry"] = entries[name].decode(errors="replace")
            parts.append(part)
        call.put(parts=parts)
        # Durably: the next step removes what this one has stored from the former shard.
        for answered in await self.index.pipelined_durably.run(call):
            if isinstance(answered, bytes):
                raise scripting.reported(answered, "move rows")

    async def _states(
        self, shard: messages.ShardId, travellers: Iterable[_Traveller]
    ) -> dict[bytes, bytes]:
        """Return the records of these schedules' occurrences, by member."""
        members = [member for one in travellers for member in one.points if member != one.chain]
        if not members:
            return {}
        (found,) = await self.index.read(
            "read occurrences to move", ("HMGET", self.index.shard(shard).occrec, *members)
        )
        return {member: record or b"" for member, record in zip(members, found, strict=True)}

    async def _set_entries(
        self, shard: messages.ShardId, among: Collection[str]
    ) -> dict[str, bytes]:
        """Return the former shard's entries of the sets among these lanes."""
        of_sets = list(filter(lanes.is_of_set, among))
        if not of_sets:
            return {}
        (found,) = await self.index.read(
            "read the entries of sets",
            ("HMGET", self.index.shard(shard).meta, *of_sets),
        )
        return {
            lane: entry for lane, entry in zip(of_sets, found, strict=True) if entry is not None
        }

    async def _kinds_of(
        self,
        shard: messages.ShardId,
        travellers: Iterable[_Traveller],
        entries: Mapping[str, bytes],
    ) -> dict[bytes, putting.Kind]:
        """Return the kinds of a batch with the signed contents of their targets, by digest."""
        known = await self.reader.kinds.read(shard, {_kind(one.record) for one in travellers})
        targets = {
            digest: setrecord.parse_entry(entries[kind.lane]).target
            if kind.lane in entries
            else kind.target
            for digest, kind in known.items()
        }
        digests = sorted(set(targets.values()) - {""})
        found: Sequence[bytes | None] = ()
        if digests:
            (found,) = await self.index.read(
                "read blobs", ("HMGET", self.index.shard(shard).blobs, *digests)
            )
        blobs = dict(zip(digests, found, strict=True))
        return {
            digest: putting.Kind(
                digest,
                kinds.text_of(kind.lane, kind.target, kind.rule_text),
                targets[digest],
                blobs.get(targets[digest]) or b"",
            )
            for digest, kind in known.items()
        }

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
            letters.append((*position, entry_id.decode()))
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


def _by_lane(row: tuple[str, putting.Task]) -> tuple[str, int]:
    """Return the sort key of a row of a batch: its lane and bucket."""
    return row[0], row[1].row.bucket


def _parts(listed: Sequence[ListedT], most: int) -> Iterator[Sequence[ListedT]]:
    for first in range(0, len(listed), most):
        yield listed[first : first + most]
