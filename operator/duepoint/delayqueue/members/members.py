"""The members of sets, for the HTTP API, the operator and the command line: one service.

Every method takes the set's record; ``writing``, ``dropping``, ``lookups``, ``pages``, ``dues`` and
``counting`` do the work. They raise QueueUnavailable where no server answers, and WorldChanged
where the index changes faster than it can be followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.delayqueue import deadletters
from duepoint.delayqueue.members import (
    confirming,
    counting,
    dropping,
    dues,
    lookups,
    pages,
    triggers,
    values,
    writing,
)
from duepoint.delayqueue.members import deadletters as member_deadletters
from duepoint.delayqueue.wire import nodes
from duepoint.schedules.sets.setrecord import SetRecord


@dataclass(eq=False)
class Members:
    """Writes, removes and reads members."""

    writer: writing.MemberWriter
    remover: dropping.MemberRemover
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
        written = await self.remover.remove(set_, rows)
        await self._wait_until_safe(set_, rows, safety)
        return written

    async def _wait_until_safe(
        self,
        set_: SetRecord,
        rows: Sequence[values.MemberWrite | values.MemberRemoval],
        safety: nodes.Safety | None,
    ) -> None:
        if safety is not None:
            names = [row.id for row in rows]
            await self.confirmations.wait_until_safe(set_.identity, names, safety)

    async def get(self, set_: SetRecord, ids: Sequence[str]) -> list[values.StoredMember | None]:
        """The members of these ids, in their order; None = there is none."""
        return await self.lookups.get(set_, ids)

    async def page(
        self, set_: SetRecord, cursor: str = "", *, limit: int, prefix: str = ""
    ) -> values.MemberPage:
        """Some members, in the order of the hashes of their ids; raises InvalidCursor.

        Bounded work: there may be fewer than ``limit``, even none, and still more to come.
        """
        return await self.pages.page(set_, cursor, limit=limit, prefix=prefix)

    async def export(self, set_: SetRecord, cursor: str = "", *, limit: int) -> values.MemberPage:
        """Some members, shard by shard; what does not change meanwhile comes exactly once."""
        return await self.pages.page(set_, cursor, limit=limit)

    async def due(
        self, set_: SetRecord, since_us: int, until_us: int, *, limit: int, cursor: str = ""
    ) -> values.MemberPage:
        """Members due in [since, until), by due; raises InvalidCursor."""
        return await self.dues.due(set_, since_us, until_us, limit=limit, cursor=cursor)

    async def unacknowledged(self, set_: SetRecord, *, limit: int) -> list[values.OpenPoint]:
        """Slots that workers hold now, then those that wait to be tried again."""
        return await self.dues.unacknowledged(set_, limit=limit)

    async def count(self, set_: SetRecord) -> int:
        """How many members the set has."""
        return await self.counting.members(set_)

    async def counts(self, set_: SetRecord) -> values.MemberCounts:
        """What the set holds."""
        return await self.counting.counts(set_)

    async def trigger(
        self, set_: SetRecord, name: str, *, run_uid: str, payload: bytes = b""
    ) -> int | None:
        """Fire a member now; the run's slot in microseconds, None where there is no such member.

        ``payload`` empty = the member's own. The run may still wait: for its set to be resumed, or
        for a receiver.
        """
        return await self.triggers.trigger(set_, name, run_uid, payload)

    async def dead_letters(
        self, set_: SetRecord, cursor: str = "", *, limit: int
    ) -> member_deadletters.LetterPage:
        """Some slots of members that were given up; bounded work. Raises InvalidCursor."""
        return await self.given_up.page(set_, cursor, limit=limit)

    async def replay(self, set_: SetRecord, ids: Sequence[str]) -> dict[str, deadletters.Replayed]:
        """Run the slots of these dead letters again; what became of each."""
        return await self.given_up.replay(set_, ids)
