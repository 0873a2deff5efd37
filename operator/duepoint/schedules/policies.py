"""Decides which slots of a claimed chain run, which are missed, and which slot comes next.

The decision is pure: nothing here reads a clock or touches a queue. *Now* is the time when the
chain was first claimed. The rules are those of ``docs/reference/semantics.md``. A slot is overdue
if its due has come when the chain is claimed. ``startingDeadlineSeconds`` is applied first. Then a
single overdue slot simply runs, and of several ``catchUpPolicy`` chooses. The other slots are
missed; they are reported by reason with a count, which is computed without visiting each slot.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import msgspec

from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.slots import DueSlot, Slots

#: A slot later than this when claimed counts as caught up, and ``None`` does not run it.
ON_TIME_US = 10_000_000
#: A one-off without a deadline may lie this far in the past when it is written: clocks differ a
#: little, and a request takes a while. More is a mistake, such as a wrong year in a thousand rows.
WRITTEN_LATE_US = 60_000_000
#: The most slots that ``None`` runs as on time: 10 s at the shortest period, 100 ms.
_MOST_ON_TIME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Slots that will not run, all for one reason."""

    reason: Reason
    count: int
    newest_us: int


class Chosen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A slot that will run; ``catch_up`` says that it was late or one of several."""

    slot_us: int
    due_us: int
    catch_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do with the slots of a claimed chain.

    Attributes:
        run: slots to run, oldest first.
        missed: slots that end without a run, oldest first.
        following: the first slot not decided; None if no slot is left.
        newest_us: the newest slot decided.
    """

    run: tuple[Chosen, ...]
    missed: tuple[Missed, ...]
    following: DueSlot | None
    newest_us: int


def decide(
    slots: Slots, policy: rules.Policy, *, chain_due_us: int, now_us: int, most: int | None = None
) -> Decision:
    """Return what to do with every slot from the chain's own up to now.

    New zone data can move slots. If the schedule then has no slot at or before the chain's due,
    nothing runs and the chain continues.

    Args:
        most: run at most this many, the oldest; ``following`` is then the next one. If all
            overdue slots run, the cost grows with this limit and not with their number.
    """
    first_us = slots.at_or_before(chain_due_us)
    newest_us = slots.newest_due(now_us)
    if first_us is None or newest_us is None or newest_us < first_us:
        return Decision(
            run=(), missed=(), following=slots.next_after(now_us), newest_us=chain_due_us
        )
    overdue = _Overdue(slots, policy, first_us, newest_us, now_us)
    if most is not None and newest_us > first_us and overdue.all_run():
        return overdue.oldest(most)
    chosen = overdue.chosen()
    missed = overdue.missed(chosen)
    if most is None or len(chosen) <= most:
        following = slots.next_after(newest_us)
        return Decision(run=chosen, missed=missed, following=following, newest_us=newest_us)
    following = DueSlot(chosen[most].slot_us, chosen[most].due_us)
    chosen = chosen[:most]
    return Decision(run=chosen, missed=missed, following=following, newest_us=chosen[-1].slot_us)


def lone(policy: rules.Policy, due: DueSlot, now_us: int) -> Chosen | None:
    """Return the only overdue slot as one to run; None if it is too old."""
    late_us = now_us - due.due_us
    is_late = late_us > ON_TIME_US
    if (is_late and policy.catch_up_policy == "None") or (
        policy.deadline_us is not None and late_us > policy.deadline_us
    ):
        return None
    return Chosen(slot_us=due.slot_us, due_us=due.due_us, catch_up=is_late)


def had_passed(slot_us: int, policy: rules.Policy, written_us: int) -> bool:
    """Whether a one-off was written too late for its instant, so that it does not run."""
    late_us = written_us - slot_us
    if policy.catch_up_policy == "None" and late_us > ON_TIME_US:
        return True
    return late_us > (WRITTEN_LATE_US if policy.deadline_us is None else policy.deadline_us)


def refusal(slots: Slots, policy: rules.Policy, *, slot_us: int, now_us: int) -> Reason | None:
    """Return why ``decide`` would not run this slot if it and all later due ones were overdue."""
    due_us = slots.due_slot(slot_us).due_us
    if policy.deadline_us is not None and due_us < now_us - policy.deadline_us:
        return Reason.DEADLINE_EXCEEDED
    newest_us = slots.newest_due(now_us)
    newer = 0 if newest_us is None else slots.count(slot_us, newest_us)
    match policy.catch_up_policy:
        case "All" if newer >= policy.catch_up_limit:
            return Reason.CATCH_UP_POLICY
        case "Latest" if newer:
            return Reason.CATCH_UP_POLICY
        case "None" if now_us - due_us > ON_TIME_US or newer >= _MOST_ON_TIME:
            return Reason.CATCH_UP_POLICY
    return None


@dataclass(frozen=True, slots=True)
class _Overdue:
    """The slots from ``first_us`` to ``newest_us``, all of them due at ``now_us``."""

    slots: Slots
    policy: rules.Policy
    first_us: int
    newest_us: int
    now_us: int

    def all_run(self) -> bool:
        """Whether the policy runs every one of several overdue slots."""
        if self.slots.due_slot(self.first_us).due_us < max(
            self._deadline_edge_us, self._on_time_edge_us
        ):
            return False
        return self.slots.count(self.first_us - 1, self.newest_us) <= self._most

    def oldest(self, most: int) -> Decision:
        """Return the decision to run the oldest slots, when the policy runs them all."""
        run: list[Chosen] = []
        following: DueSlot | None = self.slots.due_slot(self.first_us)
        while following is not None and following.slot_us <= self.newest_us and len(run) < most:
            run.append(Chosen(slot_us=following.slot_us, due_us=following.due_us, catch_up=True))
            following = self.slots.next_after(following.slot_us)
        return Decision(run=tuple(run), missed=(), following=following, newest_us=run[-1].slot_us)

    def chosen(self) -> tuple[Chosen, ...]:
        """Return the slots that the policy runs, oldest first."""
        if self.newest_us == self.first_us:
            chosen = lone(self.policy, self.slots.due_slot(self.newest_us), self.now_us)
            return () if chosen is None else (chosen,)
        edge_us = max(self._deadline_edge_us, self._on_time_edge_us)
        newest_first = self.slots.dues_back(self.newest_us, self.first_us)
        young = itertools.takewhile(lambda due: due.due_us >= edge_us, newest_first)
        return tuple(
            Chosen(slot_us=due.slot_us, due_us=due.due_us, catch_up=True)
            for due in reversed(list(itertools.islice(young, self._most)))
        )

    def missed(self, chosen: tuple[Chosen, ...]) -> tuple[Missed, ...]:
        """Return the slots that were not chosen, by reason."""
        if chosen and self.newest_us == self.first_us:
            return ()
        too_old = self._count_too_old()
        total = self.slots.count(self.first_us - 1, self.newest_us)
        oldest_run_us = chosen[0].slot_us if chosen else self.newest_us + 1
        over_deadline_us = min(self._deadline_edge_us, oldest_run_us)
        groups = (
            (Reason.DEADLINE_EXCEEDED, too_old, over_deadline_us),
            (Reason.CATCH_UP_POLICY, total - len(chosen) - too_old, oldest_run_us),
        )
        return tuple(
            Missed(
                reason=reason,
                count=count,
                newest_us=self.slots.previous_before(end_us) or self.first_us,
            )
            for reason, count, end_us in groups
            if count > 0
        )

    @property
    def _most(self) -> int:
        match self.policy.catch_up_policy:
            case "Latest":
                return 1
            case "All":
                return self.policy.catch_up_limit
            case _:
                return _MOST_ON_TIME

    @property
    def _deadline_edge_us(self) -> int:
        """Return the instant before which a due is past its deadline."""
        deadline_us = self.policy.deadline_us
        return 0 if deadline_us is None else self.now_us - deadline_us

    @property
    def _on_time_edge_us(self) -> int:
        return self.now_us - ON_TIME_US if self.policy.catch_up_policy == "None" else 0

    def _count_too_old(self) -> int:
        edge_us = min(self._deadline_edge_us, self.newest_us + 1)
        if edge_us <= self.first_us:
            return 0
        before = self.slots.count(self.first_us - 1, edge_us - 1)
        # A due comes before the next slot: only the last slot before the edge may be due after it.
        last_us = self.slots.previous_before(edge_us)
        if last_us is None or last_us < self.first_us:
            return before
        return before - (self.slots.due_slot(last_us).due_us >= self._deadline_edge_us)
