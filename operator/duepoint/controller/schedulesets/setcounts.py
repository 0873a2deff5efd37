"""What sets hold and how slots ended, counted again and again, and what Redis has lost of it.

A set has no second copy, so a loss is only noticed by counting: the queue holds nothing of a set
that had members, a shard lacks the set's entry because its server was emptied, or a server went
back in time and fewer members are there. What is reported is the last count before. How slots end
is counted by the scripts that end them, in each shard. Those numbers never fall, so where shards
show less than they did before, the difference is put back.
"""

from __future__ import annotations

from collections.abc import Callable

from duepoint import errors, telemetry
from duepoint.controller.schedulesets.setstate import INTERVAL_SECONDS, FollowedSets, SetPublisher
from duepoint.controller.schedulesets.setstatus import FollowedSet, Lost, SetNumbers
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors

#: Rounds of counting from one look at the servers' settings to the next.
_ROUNDS_PER_LOOK = 6


class SetCounts:
    """The service; one for each term of a leader.

    Args:
        lost: called where members of a set were lost.
        incomplete: called where shards lack the set's entry: it is to be stored again.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        states: FollowedSets,
        publisher: SetPublisher,
        lost: Callable[[FollowedSet], None],
        incomplete: Callable[[FollowedSet], None],
    ) -> None:
        self._term = term
        self._states = states
        self._publisher = publisher
        self._lost = lost
        self._incomplete = incomplete
        self._upheavals: dict[str, int] = {}

    async def run(self) -> None:
        """Count until cancelled."""
        number = 0
        try:
            while True:
                if len(self._states) and number % _ROUNDS_PER_LOOK == 0:
                    await self._look()
                await self._term.clock.sleep(INTERVAL_SECONDS)
                number += 1
                for state in self._states:
                    await self._count_or_wait(state)
                self._show_losses()
        finally:
            telemetry.sets_with_lost_members.set(0)  # the next leader sets it

    def _show_losses(self) -> None:
        lost = sum(state.lost is not None for state in self._states)
        telemetry.sets_with_lost_members.set(lost)

    async def _look(self) -> None:
        try:
            self._publisher.durability = await self._term.queue.durability.read()
        except errors.TryLater:
            return  # the next round asks again; the status keeps what it says

    async def count_all(self) -> None:
        """Count every set now; raises QueueUnavailable and LayoutChanged."""
        for state in self._states:
            if not state.is_deleting:
                await self.count(state)

    async def _count_or_wait(self, state: FollowedSet) -> None:
        if state.record is None or state.is_deleting:
            return
        try:
            await self.count(state)
        except (errors.TryLater, queue_errors.LayoutChanged):
            return  # the health of the queue and of the index is others' to report
        self._publisher.publish(state)

    async def count(self, state: FollowedSet) -> None:
        """The state has the numbers of now; raises QueueUnavailable."""
        if state.record is None:
            return
        if self._publisher.durability is None:
            await self._look()
        counted = await self._term.queue.members.counting.counts(state.record)
        if (lost := state.tally.beyond(counted.ended)) is not None:
            await self._term.queue.sets.count_again(state.record, lost, self._term.epoch)
        state.tally = state.tally.newest(counted.ended)
        uid, upheavals = state.seen.uid, self._term.queue.health.upheavals
        before = state.members or 0
        went_back = self._upheavals.get(uid, upheavals) != upheavals
        self._upheavals[uid] = upheavals
        if before > counted.members and (went_back or counted.shards_without):
            self.note_loss(state, before)
        if counted.shards_without:
            self._incomplete(state)
        state.members = counted.members
        state.numbers = SetNumbers(
            members=counted.members,
            in_flight=counted.in_flight,
            next_due_us=counted.next_due_us,
            oldest_overdue_us=counted.oldest_overdue_us,
            counted_us=self._term.clock.now_us(),
        )
        if state.lost is not None and counted.members >= state.lost.members:
            state.lost = None

    def note_loss(self, state: FollowedSet, before: int) -> None:
        """There were so many members, and fewer are there."""
        known = 0 if state.lost is None else state.lost.members
        state.lost = Lost(
            members=max(before, known),
            at_us=self._term.clock.now_us(),
            generation=state.seen.generation,
        )
        telemetry.logger.warning(
            "members of a set were lost with Redis", set=state.seen.identity, before=before
        )
        self._lost(state)

    def forget(self, uid: str) -> None:
        """The set is gone."""
        self._upheavals.pop(uid, None)
