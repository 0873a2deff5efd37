"""The members of sets: what writes and removes them, and what reads, counts and triggers them.

Every method takes the set's record. They raise QueueUnavailable where no server answers, and
WorldChanged where the index changes faster than it can be followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.delayqueue import index
from duepoint.delayqueue.definitions import codec, lanes, putting
from duepoint.delayqueue.members import (
    confirming,
    counting,
    dues,
    lookups,
    pages,
    triggers,
    values,
    writing,
)
from duepoint.delayqueue.members import deadletters as member_deadletters
from duepoint.delayqueue.members import rows as member_rows
from duepoint.delayqueue.members.values import Outcome
from duepoint.delayqueue.wire import nodes
from duepoint.schedules.sets.setrecord import SetRecord

#: No member has it: the condition never holds.
_NO_SUCH_TAG = b"????????"


@dataclass(eq=False)
class Members:
    """Writes, removes and reads members."""

    index: index.Index
    writer: writing.MemberWriter
    rows: putting.RowWriter
    lookups: lookups.MemberLookups
    pages: pages.MemberPages
    dues: dues.MemberDues
    counting: counting.MemberCounting
    triggers: triggers.MemberTriggers
    given_up: member_deadletters.MemberLetters
    confirmations: confirming.Confirmations

    async def put(
        self,
        set_: SetRecord,
        rows: Sequence[values.MemberWrite],
        *,
        safety: nodes.Safety | None = None,
    ) -> list[values.MemberWritten]:
        """Store members; the answers are in the order of the rows.

        Raises NotDurable where they are stored, and not as safely as was asked for.
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

        Raises NotDurable where they are gone, and not as safely as was asked for.
        """
        ids = member_rows.Ids(set_.identity, self.index.buckets)
        wanted = {
            putting.Row(place, *ids.of(name := row.id.encode())): (name, _expected(row))
            for place, row in enumerate(rows)
        }
        lane = lanes.Lane(lanes.text_of(set_.identity), by_rows=set_.is_managed)
        answers = await self.rows.drop(lane, wanted)
        await self._wait_until_safe(set_, rows, safety)
        return list(map(_removed, rows, answers))

    async def _wait_until_safe(
        self,
        set_: SetRecord,
        rows: Sequence[values.MemberWrite | values.MemberRemoval],
        safety: nodes.Safety | None,
    ) -> None:
        if safety is not None:
            names = [row.id for row in rows]
            await self.confirmations.wait_until_safe(set_.identity, names, safety)


def _expected(row: values.MemberRemoval) -> bytes:
    """The fingerprint that is to stand there; empty = any."""
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
