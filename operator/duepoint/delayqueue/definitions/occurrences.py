"""Adds and removes occurrences of a stored schedule on request.

ScheduleRuns and checks become occurrences that are due at once (``enqueue``) and may be withdrawn
while they wait. Each call is one fenced script and may be repeated after a lost reply; if the
schedule is moving to another shard, the call waits.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import msgspec

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages
from duepoint.delayqueue.definitions import codec, lanes, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: The most bytes of a member behind its schedule's id.
_AFTER_ID = points.TAGGED_OCCURRENCE_LENGTH
_OCCURRENCES_PER_CHUNK = 500
#: Most occurrences in one script: some 0.3 ms of the server's time.
_ENQUEUE_BATCH = 100


@dataclass(eq=False)
class Occurrences:
    """Occurrences of stored definitions."""

    index: index.Index
    layouts: layouts.Layouts

    async def enqueue(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        record: messages.OccurrenceRecord,
        epoch: messages.Epoch | None,
        *,
        most: tuple[int, int, int] | None = None,
    ) -> messages.Armed:
        """Add one occurrence, as ``enqueue_many`` does."""
        (armed,) = await self.enqueue_many(definition, [(point, record)], epoch, most=most)
        return armed

    async def enqueue_many(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch | None,
        *,
        most: tuple[int, int, int] | None = None,
        ledger: tuple[str, bytes] | None = None,
    ) -> list[messages.Armed]:
        """Add all of these occurrences.

        Args:
            epoch: term of the leader that asks; None = a person asks.
            ledger: a record of these slots, and its name, to store in the same step.
            most: for a member of a set: how many it may have, and in one shard the set and the
                namespace. Raises TooManyWaiting beyond.
        """
        armed: list[messages.Armed] = []
        for first in range(0, len(wanted), _ENQUEUE_BATCH):
            part = wanted[first : first + _ENQUEUE_BATCH]
            call_in = functools.partial(
                self._enqueue, definition, part, epoch=epoch, most=most, ledger=ledger or ()
            )
            reply = await self.layouts.run_where_it_is(definition.id, call_in)
            if reply == b"GONE":
                raise errors.WorldChanged(f"{definition.identity}: its definition is gone")
            if reply == b"FULL":
                raise queue_errors.TooManyWaiting(f"{definition.identity}: too many runs wait")
            armed += [messages.Armed(answer.decode().lower()) for answer in reply]
        return armed

    def _enqueue(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        shard: messages.ShardId,
        *,
        epoch: messages.Epoch | None,
        most: tuple[int, int, int] | None,
        ledger: tuple[str, bytes] | tuple[()],
    ) -> scripting.ScriptCall:
        call = self._call("enqueue", definition, shard, epoch)
        call.put(at=self.index.clock.now_us(), uid=codec.packed_uid(definition.uid))
        if most is not None:
            call.put(most=most)
        call.put(
            members=call.run(point.member for point, _ in wanted),
            records=call.run(records.pack(record) for _, record in wanted),
            ledger=call.run(ledger),
        )
        return call

    async def withdraw(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        def call_in(shard: messages.ShardId) -> scripting.ScriptCall:
            call = self._call("withdraw", definition, shard, epoch)
            call.put(withdrawn=point.member)
            return call

        reply = await self.layouts.run_where_it_is(definition.id, call_in)
        return messages.Armed(reply.decode().lower())

    def _call(
        self,
        script: str,
        definition: definitions.Definition,
        shard: messages.ShardId,
        epoch: messages.Epoch | None,
    ) -> scripting.ScriptCall:
        lane = lanes.of_schedule(definition.namespace, definition.owner)
        names = self.index.shard(shard)
        return self.index.call(
            script,
            shard,
            names.lane(lane),
            names.bucket_of(definition.id, self.index.buckets),
            names.triggers(definition.namespace),
            epoch=epoch,
            lane=lane,
            id=definition.id,
        )

    async def all_occurrences(
        self, shard: messages.ShardId, of: points.ScheduleId | None = None
    ) -> AsyncIterator[tuple[points.DuePoint, messages.OccurrenceRecord]]:
        """Yield the slots of a shard or a schedule that have not ended, claimed or not.

        The points are without dues, and the records without payloads of up to 64 KiB.
        """
        names = self.index.shard(shard)
        begin = b"-" if of is None else b"[" + of
        end = b"+" if of is None else b"[" + of + b"\xff" * _AFTER_ID
        while True:
            (members,) = await self.index.read(
                "read all occurrences",
                ("ZRANGE", names.occ, begin, end, "BYLEX", "LIMIT", 0, _OCCURRENCES_PER_CHUNK),
            )
            if not members:
                return
            (found,) = await self.index.read(
                "read all occurrences", ("HMGET", names.occrec, *members)
            )
            for member, record in zip(members, found, strict=True):
                point = points.parse_member(member, 0)
                if point is not None:  # a sentinel keeps the key
                    known = records.unpack_or_first(record or b"")
                    yield point, msgspec.structs.replace(known, payload=b"", signature="")
            if len(members) < _OCCURRENCES_PER_CHUNK:
                return
            begin = b"(" + members[-1]
