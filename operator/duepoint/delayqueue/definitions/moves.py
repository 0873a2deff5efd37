"""Bringing schedules from a former shard to their new ones.

A batch leaves in three steps: ``export`` takes its points out of reach and notes everything under
the batch, ``import`` stores it in the new shards, ``forget`` removes what is left. Each step may be
repeated by any process, so a mover may die between two of them: a worker that meets a
batch older than five seconds, or an operator that waits for one, finishes it. What needs the
leader's term (which schedules leave, and when) is in ``resharding``.

Definitions name texts by the numbers of their shard, so they are written anew on the way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from duepoint import errors, faults, telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages
from duepoint.delayqueue.definitions import codec, interning, reading
from duepoint.delayqueue.wire import scripting
from duepoint.faults import FaultPoint
from duepoint.schedules import points
from duepoint.schedules.sets import entries as setentries

log = structlog.get_logger(__name__)

#: Between two tries of an edit whose schedule is on its way.
BUSY_SECONDS = 0.005
#: A batch that is on its way for longer is finished by the process that meets it; the scripts know
#: this, too.
PATIENCE_SECONDS = 5.0
_MOST_BATCHES = 16
#: A number that no text is ever given.
_NOTHING = 0
#: Blobs that are known to be in a new shard already; forgotten all together.
_BLOBS_REMEMBERED = 100_000

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Traveller:
    """One schedule of a batch.

    Attributes:
        lane: number of its lane in the former shard.
        record: its packed definition; empty where that went before.
        due: due of its chain as text; empty where no chain goes with it.
        occurrences: member, due, record of each occurrence, one after the other.
    """

    lane: int
    id: points.ScheduleId
    record: bytes
    due: bytes
    occurrences: tuple[bytes, ...]

    @classmethod
    def of(cls, reply: Sequence[Any]) -> Traveller:
        lane, _, schedule_id, record, due, occurrences = reply
        return cls(int(lane), points.ScheduleId(schedule_id), record, due, tuple(occurrences))


@dataclass(eq=False)
class Moves:
    """Finishes batches of schedules on their way, and waits for them."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    numbering: interning.Numbering
    interned: interning.Interned

    def __post_init__(self) -> None:
        self._blobs_there: set[tuple[messages.ShardId, str | None, bytes]] = set()

    async def finish(self, shard: messages.ShardId, batch: bytes | None = None) -> int:
        """Finish all batches on their way from this shard, or one of them; how many."""
        finished = 0
        while moves := await self._moves(shard, batch):
            for name, taken in moves:
                await self.bring(shard, name, [Traveller.of(traveller) for traveller in taken])
            finished += len(moves)
        return finished

    async def finish_overdue(self, shard: messages.ShardId, batch: bytes) -> None:
        """For who meets a batch that was left behind; another time if it cannot be done now."""
        try:
            await self.finish(shard, batch)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            log.warning("move not finished", shard=shard, error=str(trouble))

    async def until_free(
        self, shard: messages.ShardId, run: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        """The reply of a script that refuses schedules on their way, once it does not."""
        began = self.index.clock.monotonic()
        while True:
            reply = await run()
            if (reply[0] if isinstance(reply, list) else reply) != b"BUSY":
                return reply
            if self.index.clock.monotonic() - began > PATIENCE_SECONDS:
                await self.finish(shard)
                began = self.index.clock.monotonic()
            await self.index.clock.sleep(BUSY_SECONDS)

    async def _moves(self, shard: messages.ShardId, batch: bytes | None) -> list[Any]:
        call = self.index.call("moves", shard, most=_MOST_BATCHES)
        if batch is not None:
            call.put(batch=batch)
        moves: list[Any] = await self.index.scripts.run(call)
        return moves

    # -- the second and the third step ----------------------------------------------------------

    async def bring(
        self, shard: messages.ShardId, batch: bytes, travellers: Sequence[Traveller]
    ) -> int:
        """The batch is in its new shards, and nothing of it in the former one.

        How many of it name a text that is lost: they arrive as unreadable as they were.
        """
        (meta,) = await self.index.read(
            "read a shard's life", ("HMGET", self.index.shard(shard).meta, "layout", "incarnation")
        )
        self.reader.check_meta(shard, meta)
        texts = await self._texts_of(shard, batch, _numbers(travellers))
        by_id = {traveller.id: traveller for traveller in travellers}
        for home, ids in (await self.layouts.by_home(by_id, beyond=shard)).items():
            await faults.reach(FaultPoint.BEFORE_BATCH_IMPORTED)
            await self._import(shard, home, batch, [by_id[i] for i in ids], texts)
        await faults.reach(FaultPoint.AFTER_BATCH_IMPORTED)
        await self._forget(shard, batch, travellers)
        lost = sum(not texts.keys() >= _numbers([traveller]) for traveller in travellers)
        if lost:
            telemetry.unreadable_total.labels("text").inc(lost)
            log.warning("texts of definitions are lost", shard=shard, definitions=lost)
        return lost

    async def _texts_of(
        self, shard: messages.ShardId, batch: bytes, numbers: set[int]
    ) -> dict[int, bytes]:
        """What the numbers of a batch stand for; without those that stand for nothing."""
        is_whole = await self.reader.learn_numbers(shard, numbers)
        texts = {number: self.interned.text(shard, number) for number in numbers}
        known = {number: text for number, text in texts.items() if text is not None}
        # A server that went back in time has neither the texts nor the batch.
        if len(known) < len(texts) and (is_whole or not await self._moves(shard, batch)):
            raise queue_errors.LayoutChanged(f"shard {shard} was created anew while it was read")
        return known

    async def _import(
        self,
        shard: messages.ShardId,
        home: messages.ShardId,
        batch: bytes,
        travellers: Sequence[Traveller],
        known: Mapping[int, bytes],
    ) -> None:
        epoch = messages.Epoch(await self.layouts.newest_epoch())
        texts = {n: known[n] for n in _numbers(travellers) & known.keys()}
        entries = await self._set_entries(shard, texts)
        for last in (False, True):
            wanted = sorted(set(texts.values()))
            numbers = await self.numbering.intern(home, wanted, epoch, script="adopt")
            numbered = {former: numbers[text] for former, text in texts.items()}
            blobs = await self._blobs_to_bring(shard, home, texts.values(), entries.values())
            try:
                # It is forgotten where it was next: a replica has it first, where there is one.
                await self.index.pipelined_durably.run(
                    self._import_call(
                        home, batch, travellers, numbered=numbered, blobs=blobs, entries=entries
                    )
                )
            except queue_errors.LayoutChanged:
                self.interned.forget(home)  # created anew since, or closed to us
                if last:
                    raise
            else:
                if len(self._blobs_there) > _BLOBS_REMEMBERED:
                    self._blobs_there.clear()
                incarnation = self.interned.incarnation(home)
                self._blobs_there.update((home, incarnation, digest) for digest in blobs)
                return

    async def _set_entries(
        self, shard: messages.ShardId, texts: Mapping[int, bytes]
    ) -> dict[int, bytes]:
        """What the former shard knows of the sets among these, by their numbers there."""
        kind = interning.TextKind.SET.encode()
        lanes = [number for number, text in texts.items() if text.startswith(kind)]
        if not lanes:
            return {}
        (found,) = await self.index.read(
            "read what a shard knows of sets",
            ("HMGET", self.index.shard(shard).meta, *(f"s{lane}" for lane in lanes)),
        )
        return {lane: entry for lane, entry in zip(lanes, found, strict=True) if entry is not None}

    async def _blobs_to_bring(
        self,
        shard: messages.ShardId,
        home: messages.ShardId,
        texts: Iterable[bytes],
        entries: Iterable[bytes],
    ) -> dict[bytes, bytes]:
        """Digests and signed contents that the new shard may not have yet."""
        incarnation = self.interned.incarnation(home)
        kind = interning.TextKind.TARGET.encode()
        named = {text[1:] for text in texts if text.startswith(kind)}
        named |= {setentries.parse(entry).target.encode() for entry in entries} - {b""}
        digests = sorted(
            digest for digest in named if (home, incarnation, digest) not in self._blobs_there
        )
        if not digests:
            return {}
        (found,) = await self.index.read(
            "read blobs", ("HMGET", self.index.shard(shard).blobs, *digests)
        )
        return {
            digest: blob for digest, blob in zip(digests, found, strict=True) if blob is not None
        }

    def _import_call(
        self,
        home: messages.ShardId,
        batch: bytes,
        travellers: Sequence[Traveller],
        *,
        numbered: Mapping[int, int],
        blobs: dict[bytes, bytes],
        entries: Mapping[int, bytes],
    ) -> scripting.ScriptCall:
        names = self.index.shard(home)
        incarnation = self.interned.incarnation(home)
        call = self.index.call("import", home, incarnation=incarnation, batch=batch)
        call.put(blobs=call.run(part for pair in blobs.items() for part in pair))
        schedules = []
        for traveller in travellers:
            lane = numbered.get(traveller.lane, _NOTHING)
            record = _renumbered(traveller.record, numbered) if traveller.record else b""
            schedules.append(
                (
                    str(lane),
                    call.key(names.lane(lane)),
                    call.key(names.bucket_of(traveller.id, self.index.buckets)),
                    call.position(traveller.id),
                    call.position(record) if record else 0,
                    int(traveller.due) if traveller.due else False,
                    *call.run(traveller.occurrences),
                )
            )
        sets = [
            (str(numbered[lane]), entry.decode(errors="replace"))
            for lane, entry in entries.items()
            if lane in numbered
        ]
        call.put(schedules=schedules, sets=sets)
        return call

    async def _forget(
        self, shard: messages.ShardId, batch: bytes, travellers: Sequence[Traveller]
    ) -> None:
        names = self.index.shard(shard)
        call = self.index.call("forget", shard, batch=batch)
        call.put(
            schedules=[
                (
                    call.position(traveller.id),
                    *map(
                        call.key,
                        (
                            names.bucket_of(traveller.id, self.index.buckets),
                            names.history_of(traveller.id, self.index.buckets),
                            names.history_of(traveller.id, self.index.buckets, of_member=True),
                        ),
                    ),
                )
                for traveller in travellers
            ]
        )
        await self.index.scripts.run(call)


def _renumbered(record: bytes, numbered: Mapping[int, int]) -> bytes:
    """The record with the numbers of its new shard; one that lacks a text names none at all.

    So neither a claim nor the comparison with the objects can read it.
    """
    numbers = codec.numbers(record)
    if not all(number in numbered for number in numbers):
        numbered = dict.fromkeys(numbers, _NOTHING)
    return codec.renumbered(record, numbered)


def _numbers(travellers: Iterable[Traveller]) -> set[int]:
    numbers: set[int] = set()
    for traveller in travellers:
        numbers.add(traveller.lane)
        if traveller.record:
            numbers.update(codec.numbers(traveller.record))
    return numbers
