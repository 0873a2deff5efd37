"""The values between planning and firing: attempts, batches, plans. Pure.

Every point of a claim is in exactly one place of its plan: a batch, an attempt, a split (an attempt
whose chain moves on first), or the settlement of points that end without an attempt.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from duepoint.delayqueue import messages
from duepoint.schedules import actions, points, slots
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.targets import target as targets

TRIGGER_SCHEDULE = "Schedule"
TRIGGER_CATCH_UP = "CatchUp"
TRIGGER_CHECK = "Check"


@dataclass(frozen=True, slots=True)
class ActionUnreadable:
    """An action whose blob is missing, forged or of an unknown form; the message says which."""

    message: str


#: What a waiting attempt needs of its action (``actioncache.outline``).
Outline = actions.Action | ActionUnreadable
#: Outlines by namespace and target.
Outlines = Mapping[tuple[str, str], Outline]

NO_RECORD = messages.OccurrenceRecord()
_ID_LENGTH = 8

_ValueT = TypeVar("_ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one slot.

    Attributes:
        point: the claimed point; settling it ends the attempt.
        due_us: slot plus jitter; lateness is measured from it.
        number: 1 for the first try.
        first_try_us: time of the first try; 0 if this is the first.
        record: the record of an occurrence, with the overrides of a ScheduleRun.
        following: the next slot of a chain point that is fired directly; None if no slot is left.
            Unused for occurrences.
        completes: no slot of the schedule is left after this one.
        begins_first: may be tried while chains of its claim are still being moved on: it is its
            chain's own slot, so a worker that finds the chain unmoved after a crash fires this very
            slot again.
        is_judged: a concurrency policy decides whether it may start, if its target can last.
    """

    point: DuePoint
    definition: definitions.Definition
    slot_us: int
    due_us: int
    previous_us: int | None
    trigger: str
    number: int = 1
    first_try_us: int = 0
    record: messages.OccurrenceRecord = NO_RECORD
    following: slots.DueSlot | None = None
    completes: bool = False
    begins_first: bool = False
    is_judged: bool = False

    @property
    def is_chain(self) -> bool:
        return self.point.kind is PointKind.CHAIN

    @property
    def deadline_us(self) -> int | None:
        """Until when the slot may start; None if its Schedule sets no deadline."""
        limit_us = self.definition.rule.policy.deadline_us
        return None if limit_us is None else self.due_us + limit_us

    @property
    def run_uid(self) -> str:
        """The uid of the ScheduleRun that requested this slot; empty for regular ones."""
        return self.record.run_uid

    @property
    def is_retry(self) -> bool:
        return self.point.kind is PointKind.RETRY or self.number > 1

    def firing(self, action: actions.Action, *, now: float, not_after: float) -> targets.Firing:
        """Return the attempt as its target sees it; ``now`` and ``not_after`` are monotonic."""
        known = self.definition
        return targets.Firing(
            action=action,
            namespace=known.namespace,
            name=known.name,
            uid=known.uid,
            owner=known.owner,
            generation=known.generation,
            slot_us=self.slot_us,
            due_us=self.due_us,
            previous_us=self.previous_us,
            trigger=self.trigger,
            attempt=self.number,
            run_uid=self.run_uid,
            time_zone=known.rule.timing.time_zone,
            not_after_monotonic=not_after,
            ends_by_monotonic=now + action.target.limit_seconds,
        )

    @property
    def is_regular(self) -> bool:
        """Whether the slot belongs to the schedule's own sequence (and moves its watermark)."""
        return self.trigger in (TRIGGER_SCHEDULE, TRIGGER_CATCH_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(targets.Firings):
    """First attempts at slots of one namespace, target and trigger, by column.

    A row is a chain with its oldest slot that is due.

    Attributes:
        target: digest of the action.
        members: the members of the claimed points.
        macs: the signatures of the ``payloads``.
        indexes: rows of the claim.
        following: due of each chain's next slot; None for a member that fires once.
        previous_us: the slot before, if there is one.
    """

    target: str
    members: Sequence[bytes]
    macs: Sequence[bytes]
    indexes: Sequence[int]
    following: Sequence[int | None]
    previous_us: Sequence[int | None]
    rules: Sequence[rules.Rule]

    def attempts(self) -> list[tuple[Attempt, ...]]:
        """Return the rows as attempts that do not wait for one another."""
        return [(self._attempt(row),) for row in range(len(self.members))]

    def pick(self, rows: Sequence[int]) -> Batch:
        """Return some rows as a batch of their own."""
        chosen: dict[str, Any] = {
            name: picked(column, rows) for name in _COLUMNS if (column := getattr(self, name))
        }
        return dataclasses.replace(self, **chosen)

    def _attempt(self, row: int) -> Attempt:
        slot_us, following_us = self.slots_us[row], self.following[row]
        member, generation = self.members[row], self.generations[row]
        rule, is_once = self.rules[row], following_us is None
        known = definitions.Definition(
            namespace=self.namespace,
            name=self.names[row],
            uid=self.uids[row],
            generation=generation,
            # An ordinary point needs none of these three, so they were not read.
            timing_generation=generation,
            created_us=0,
            not_before_us=0,
            state=definitions.State.ARMED,
            rule=rules.at_instant(rule, slot_us) if is_once else rule,
            target=self.target,
            owner=self.owner,
            payload=self.payloads[row] if self.payloads else b"",
            payload_mac=self.macs[row] if self.payloads else b"",
            once_us=slot_us if is_once else None,
            version=points.TimingVersion(member[_ID_LENGTH:] if self.owner is not None else b""),
        )
        return Attempt(
            point=points.chain(
                points.ScheduleId(member[:_ID_LENGTH]),
                points.TimingVersion(member[_ID_LENGTH:]),
                slot_us,
            ),
            definition=known,
            slot_us=slot_us,
            due_us=slot_us,
            previous_us=self.previous_us[row],
            trigger=self.trigger,
            following=None if following_us is None else slots.DueSlot(following_us, following_us),
            completes=is_once,
            begins_first=True,
        )


def picked(column: Sequence[_ValueT], rows: Sequence[int]) -> Sequence[_ValueT]:
    """Return some rows of a column; a slice if the rows are a range."""
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    return [column[row] for row in rows]


_COLUMNS = (
    *("uids", "generations", "slots_us", "names", "payloads"),
    *("members", "macs", "indexes", "following", "previous_us", "rules"),
)


@dataclass(slots=True)
class Plan:
    """The work of one claim.

    Attributes:
        outlines: those of the actions that its attempts carry out, by namespace and target.
        batches: ordinary points whose entries the queue appends together.
        attempts: sequences of attempts; a sequence is made in its order, oldest slot first, and
            sequences do not wait for one another (a retry that hangs must not hold up the next
            slot). A check is one as well: it fires nothing, and checks the objects that the
            definition refers to.
        splits: chain points that move on before their slots are tried, each with the event of its
            slots, which are open from then on.
        settlement: that of points which end without an attempt.
        unplanned: points that met a bug or an unreadable rule. The claim holds them until its lease
            ends; reclaimed often enough, they become dead letters like any poison.
    """

    outlines: Outlines = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    attempts: list[tuple[Attempt, ...]] = field(default_factory=list)
    splits: list[messages.Settlement] = field(default_factory=list)
    settlement: messages.Settlement = field(default_factory=messages.Settlement)
    unplanned: list[tuple[DuePoint, Exception]] = field(default_factory=list)

    def add(self, other: Plan) -> None:
        """Add the plan of further points."""
        self.outlines = {**self.outlines, **other.outlines}
        self.batches += other.batches
        self.attempts += other.attempts
        self.splits += other.splits
        self.settlement.add(other.settlement)

    def members(self) -> set[bytes]:
        """Return the points of all attempts."""
        tried = {attempt.point.member for attempt in itertools.chain(*self.attempts)}
        return tried.union(*(batch.members for batch in self.batches))
