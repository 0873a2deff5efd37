"""Firing a member now, beside its own slots.

A trigger is a manual occurrence, as a ScheduleRun makes it for a Schedule: due at once, with a
payload of its own if that is wanted, tried again as any slot is. Asked for again under the same run
uid within the same call's slot it is one run.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages
from duepoint.delayqueue.definitions import occurrences, reading, records, signedblobs
from duepoint.schedules import points
from duepoint.schedules.points import PointKind
from duepoint.schedules.sets import setrecord

_SECOND_US = 1_000_000
_ROUNDS = 3
#: Runs of a member that may wait, and of a set and a namespace over all shards: a receiver that
#: does not answer keeps them, each with a payload (of 16 KiB at most: 128 MiB of a namespace).
MOST_OF_A_MEMBER = 100
MOST_OF_A_SET = 4_096
MOST_OF_A_NAMESPACE = 8_192


@dataclass(eq=False)
class MemberTriggers:
    """Makes manual runs of members."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    occurrences: occurrences.Occurrences
    signed_blobs: signedblobs.SignedBlobs

    async def trigger(
        self, set_: setrecord.SetRecord, name: str, *, run_uid: str, payload: bytes = b""
    ) -> int | None:
        """The slot of the run that is due now, in microseconds; None where there is no member.

        ``payload`` empty = the member's own. The run may still wait: for its set to be resumed, or
        for a receiver. Raises TooManyWaiting.
        """
        member_id = points.member_id(set_.identity, name)
        for _ in range(_ROUNDS):
            known = await self.reader.definition(member_id)
            if known is None or known.name != name or known.owner != set_.identity:
                return None
            slot_us = self.index.clock.now_us()
            if known.rule.whole_seconds:
                slot_us = slot_us // _SECOND_US * _SECOND_US
            record = messages.OccurrenceRecord(trigger="Manual", run_uid=run_uid)
            if payload:
                signed = records.signed_content(record, known.uid, slot_us, payload)
                signature = self.signed_blobs.digest(known.namespace, signed)
                record = msgspec.structs.replace(record, payload=payload, signature=signature)
            point = points.manual(member_id, slot_us, run_uid, PointKind.MANUAL)
            epoch = messages.Epoch(await self.layouts.newest_epoch())
            try:
                shards = self.index.known_layout().shards
                of_set = max(MOST_OF_A_MEMBER, MOST_OF_A_SET // shards)
                of_namespace = max(MOST_OF_A_MEMBER, MOST_OF_A_NAMESPACE // shards)
                most = MOST_OF_A_MEMBER, of_set, of_namespace
                await self.occurrences.enqueue(known, point, record, epoch, most=most)
            except (queue_errors.Fenced, queue_errors.LayoutChanged):
                await self.layouts.read()  # a leader began meanwhile
            except errors.WorldChanged:
                return None  # removed meanwhile
            else:
                return slot_us
        raise errors.TryLater("the index changes all the time")
