"""The members of sets: writes, removes, reads, counts and triggers them.

Every method takes the set's record. They raise QueueUnavailable if no server answers, and
WorldChanged if the index changes faster than it can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from duepoint import errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.definitions import (
    codec,
    lanes,
    occurrences,
    putting,
    reading,
    records,
    signedblobs,
)
from duepoint.delayqueue.members import (
    lookups,
    sets,
    values,
    writing,
)
from duepoint.delayqueue.members import rows as member_rows
from duepoint.delayqueue.members.pages import MemberPages
from duepoint.delayqueue.members.values import Outcome
from duepoint.delayqueue.wire import nodes, scripting
from duepoint.schedules import points
from duepoint.schedules.points import PointKind
from duepoint.schedules.sets import setrecord
from duepoint.schedules.sets.setrecord import SetRecord

#: A tag that no member has, so the condition never holds.
_NO_SUCH_TAG = b"????????"
#: Most writes of one round trip.
_WRITES_TOGETHER = 64


@dataclass(eq=False)
class Members:
    """Writes, removes and reads members."""

    index: index.Index
    writer: writing.MemberWriter
    rows: putting.RowWriter
    lookups: lookups.MemberLookups
    pages: MemberPages
    counting: sets.MemberCounting
    triggers: MemberTriggers

    async def put(
        self,
        set_: SetRecord,
        rows: Sequence[values.MemberWrite],
        *,
        safety: nodes.Safety | None = None,
    ) -> list[values.MemberWritten]:
        """Store members; the answers are in the order of the rows.

        Raises NotDurable if they are stored, but less safely than requested.
        """
        written = await self.writer.put(set_, rows)
        await self._wait_until_safe(set_, rows, safety)
        return written

    async def remove(
        self,
        set_: SetRecord,
        rows: Sequence[values.MemberRemoval],
        *,
        safety: nodes.Safety | None = None,
    ) -> list[values.MemberWritten]:
        """Remove members with all their points; the answers are in the order of the rows.

        Raises NotDurable if they are removed, but less safely than requested.
        """
        ids = member_rows.Ids(set_.identity, self.index.buckets)
        wanted = {
            putting.Row(place, *ids.of(name := row.id.encode())): (name, _expected(row))
            for place, row in enumerate(rows)
        }
        lane = lanes.Lane(lanes.of_set(set_.identity), by_rows=set_.is_managed)
        answers = await self.rows.drop(lane, wanted)
        await self._wait_until_safe(set_, rows, safety)
        return list(map(_removed, rows, answers))

    async def _wait_until_safe(
        self,
        set_: SetRecord,
        rows: Sequence[values.MemberWrite | values.MemberRemoval],
        safety: nodes.Safety | None,
    ) -> None:
        """Wait until the writes of these members are safe; raises NotDurable if not in time.

        WAIT and WAITAOF wait for the last write of their own connection, but the members may have
        been written on another one. So this makes a small write after them and waits for that one:
        replicas and files get all writes in their order.
        """
        if safety is None:
            return
        ids = member_rows.Ids(set_.identity, self.index.buckets)
        lows = {ids.of(row.id.encode())[1] for row in rows}
        newest = self.index.known_layout()
        for layout in filter(None, (newest.former, newest)):
            shards = sharding.own_shards(layout)
            asked = sorted({shards[low & layout.shards - 1] for low in lows})
            writes = [("SET", self.index.shard(shard).confirm, b"", "EX", 60) for shard in asked]
            for first in range(0, len(writes), _WRITES_TOGETHER):
                part = writes[first : first + _WRITES_TOGETHER]
                replies = await self.index.servers.exchange(part, confirmed=True, safety=safety)
                scripting.good(replies, "wait until members are safe")


def _expected(row: values.MemberRemoval) -> bytes:
    """Return the fingerprint that the stored member must have; empty = any."""
    if row.condition is None:
        return b""
    try:
        return bytes.fromhex(row.condition.tag) or _NO_SUCH_TAG
    except ValueError:
        return _NO_SUCH_TAG


def _removed(row: values.MemberRemoval, answer: bytes) -> values.MemberWritten:
    outcome, tag = Outcome.PRECONDITION, ""
    if answer == putting.REPLACED:
        outcome = Outcome.REMOVED
    elif answer == putting.MANAGED:
        outcome = Outcome.MANAGED
    elif answer != putting.NOTHING:
        tag = codec.fingerprint(answer).hex()
    elif row.condition is None:
        outcome = Outcome.ABSENT
    return values.MemberWritten(id=row.id, outcome=outcome, tag=tag)


_SECOND_US = 1_000_000
#: Runs of a member that may wait, and of a set and a namespace over all shards: a receiver that
#: does not answer keeps them, each with a payload (of 16 KiB at most: 128 MiB of a namespace).
MOST_OF_A_MEMBER = 100
MOST_OF_A_SET = 4_096
MOST_OF_A_NAMESPACE = 8_192


@dataclass(eq=False)
class MemberTriggers:
    """Fires members now, beside their own slots.

    A trigger is a manual occurrence, like that of a ScheduleRun for a Schedule: due at once, with a
    payload of its own if requested, retried like any slot. Repeated under the same run uid within
    the same call's slot it is one run.
    """

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    occurrences: occurrences.Occurrences
    signed_blobs: signedblobs.SignedBlobs

    async def trigger(
        self, set_: setrecord.SetRecord, name: str, *, run_uid: str, payload: bytes = b""
    ) -> int | None:
        """Make a run due now and return its slot, in microseconds; None if there is no member.

        ``payload`` empty = the member's own. The run may still wait: for its set to be resumed, or
        for a receiver. Raises TooManyWaiting.
        """
        member_id = points.member_id(set_.identity, name)
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
        shards = self.index.known_layout().shards
        of_set = max(MOST_OF_A_MEMBER, MOST_OF_A_SET // shards)
        of_namespace = max(MOST_OF_A_MEMBER, MOST_OF_A_NAMESPACE // shards)
        most = MOST_OF_A_MEMBER, of_set, of_namespace
        try:
            await self.occurrences.enqueue(known, point, record, None, most=most)
        except errors.WorldChanged:
            return None  # removed meanwhile
        return slot_us
