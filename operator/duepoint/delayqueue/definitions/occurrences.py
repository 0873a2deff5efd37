"""Occurrences of a stored schedule put in and taken out by request.

ScheduleRuns and checks become occurrences that are due at once (``enqueue``) and may be withdrawn
while they wait. Each is one fenced script and may be repeated after a lost reply; a schedule on its
way to another shard is waited for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from duepoint import errors
from duepoint.delayqueue import index, layouts, messages
from duepoint.delayqueue.definitions import codec, interning, moves, records
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: No member is longer behind its schedule's id than this.
_AFTER_ID = points.TAGGED_OCCURRENCE_LENGTH
_OCCURRENCES_PER_CHUNK = 500
#: Occurrences in one script: some 0.3 ms of the server's time.
_ENQUEUE_BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOccurrence:
    """An occurrence that the queue holds, claimed or not: a slot that has not ended."""

    schedule_id: points.ScheduleId
    timing_version: points.TimingVersion
    kind: points.PointKind
    slot_us: int
    record: messages.OccurrenceRecord


class Occurrences:
    """Occurrences of stored definitions."""

    def __init__(
        self,
        *,
        index: index.Index,
        layouts: layouts.Layouts,
        numbering: interning.Numbering,
        moves: moves.Moves,
    ) -> None:
        self._index = index
        self._layouts = layouts
        self._numbering = numbering
        self._moves = moves

    async def enqueue(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        record: messages.OccurrenceRecord,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        (armed,) = await self.enqueue_many(definition, [(point, record)], epoch)
        return armed

    async def enqueue_many(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> list[messages.Armed]:
        armed: list[messages.Armed] = []
        for first in range(0, len(wanted), _ENQUEUE_BATCH):
            part = wanted[first : first + _ENQUEUE_BATCH]
            armed += await self._enqueue_part(definition, part, epoch)
        return armed

    async def _enqueue_part(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> list[messages.Armed]:
        reply = await self._layouts.where_it_is(
            definition.id, lambda shard: self._enqueue_at(shard, definition, wanted, epoch)
        )
        if reply == b"GONE":
            raise errors.WorldChanged(f"{definition.identity}: its definition is gone")
        return [messages.Armed(answer.decode().lower()) for answer in reply]

    async def withdraw(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        reply = await self._layouts.where_it_is(
            definition.id, lambda shard: self._withdraw_at(shard, definition, point, epoch)
        )
        return messages.Armed(reply.decode().lower())

    async def _withdraw_at(
        self,
        shard: messages.ShardId,
        definition: definitions.Definition,
        point: points.DuePoint,
        epoch: messages.Epoch,
    ) -> bytes | None:
        text = interning.entry(interning.TextKind.NAMESPACE, definition.namespace.encode())
        lane = (await self._numbering.intern(shard, [text], epoch))[text]
        call = self._index.call(
            "withdraw",
            shard,
            self._index.shard(shard).lane(lane),
            epoch=epoch,
            lane=str(lane),
            id=definition.id,
            member=point.member,
        )
        reply: bytes = await self._moves.until_free(shard, lambda: self._index.scripts.run(call))
        return None if reply == b"ABSENT" else reply

    async def _enqueue_at(
        self,
        shard: messages.ShardId,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> Any:  # noqa: ANN401 - what the script replies
        text = interning.entry(interning.TextKind.NAMESPACE, definition.namespace.encode())
        lane = (await self._numbering.intern(shard, [text], epoch))[text]
        names = self._index.shard(shard)
        call = self._index.call(
            "enqueue",
            shard,
            *(names.lane(lane), names.bucket_of(definition.id, self._index.buckets)),
            epoch=epoch,
            lane=str(lane),
            id=definition.id,
            uid=codec.packed_uid(definition.uid),
        )
        call.put(
            members=call.run(point.member for point, _ in wanted),
            records=call.run(records.pack(record) for _, record in wanted),
        )
        reply = await self._moves.until_free(shard, lambda: self._index.scripts.run(call))
        return None if reply == b"ABSENT" else reply

    async def all_occurrences(
        self, shard: messages.ShardId, of: points.ScheduleId | None = None
    ) -> AsyncIterator[StoredOccurrence]:
        names = self._index.shard(shard)
        begin = b"-" if of is None else b"[" + of
        end = b"+" if of is None else b"[" + of + b"\xff" * _AFTER_ID
        while True:
            (members,) = await self._index.read(
                "read all occurrences",
                ("ZRANGE", names.occ, begin, end, "BYLEX", "LIMIT", 0, _OCCURRENCES_PER_CHUNK),
            )
            if not members:
                return
            (found,) = await self._index.read(
                "read all occurrences", ("HMGET", names.occrec, *members)
            )
            for member, record in zip(members, found, strict=True):
                point = points.parse_member(member, 0)
                if point is not None:  # a sentinel keeps the key
                    yield _as_occurrence(point, record)
            if len(members) < _OCCURRENCES_PER_CHUNK:
                return
            begin = b"(" + members[-1]


def _as_occurrence(point: points.DuePoint, record: bytes | None) -> StoredOccurrence:
    return StoredOccurrence(
        schedule_id=point.schedule_id,
        timing_version=point.timing_version,
        kind=point.kind,
        slot_us=point.slot_us,
        record=records.unpack_or_first(record or b""),
    )
