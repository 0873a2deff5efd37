"""The slots that a ScheduleRun asks for: a trigger or a backfill.

A trigger is one slot. A backfill is the Schedule's slots in a range, oldest or newest first. The
range is walked with a cursor (the last slot put into the queue) and never stored as a list. The
next slot comes from the newest definition, so an edit of the timing counts from there on. Slots
after the ScheduleRun's creation are not part of a backfill: they would run early, and the Schedule
runs them itself. Pure; instants in microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from duepoint.schedules import points, slots
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import PointKind
from duepoint.schedules.slots import Slots

TRIGGER_MANUAL = "Manual"
TRIGGER_BACKFILL = "Backfill"

#: Defaults of the API.
MAX_PARALLEL = 5
LIMIT = 1000
#: The same limit as for the Schedule's own payload.
PAYLOAD_LIMIT_BYTES = 64 * 1024

_SECOND_US = 1_000_000
_MILLISECOND_US = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One run, now.

    Attributes:
        slot_us: the slot that it carries.
        payload: JSON text in place of the Schedule's; empty = the Schedule's own.
        concurrency: a policy in place of the Schedule's; empty = the Schedule's own.
    """

    slot_us: int
    payload: bytes = b""
    concurrency: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The slots in [``from_us``, ``to_us``).

    Attributes:
        asked_us: when it was created; the Schedule itself runs later slots.
        max_parallel: runs that may be active at once.
        limit: a range with more slots is refused as a whole.
    """

    from_us: int
    to_us: int
    asked_us: int
    max_parallel: int = MAX_PARALLEL
    limit: int = LIMIT
    newest_first: bool = False

    @property
    def through_us(self) -> int:
        """The last instant of the range."""
        return min(self.to_us - 1, self.asked_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The parsed spec of a ScheduleRun."""

    schedule: str
    slots: Trigger | Backfill
    ttl_seconds: int | None = None

    @property
    def kind(self) -> PointKind:
        """The kind of its points."""
        return PointKind.MANUAL if isinstance(self.slots, Trigger) else PointKind.BACKFILL

    @property
    def trigger(self) -> str:
        """The word for its kind in Jobs, deliveries and statuses."""
        return TRIGGER_MANUAL if isinstance(self.slots, Trigger) else TRIGGER_BACKFILL


def timeline(stored: Definition) -> Slots:
    """Return all slots of a Schedule, even while it is suspended."""
    return timeline_of(stored.rule, identity=stored.identity, created_us=stored.created_us)


def timeline_of(rule: rules.Rule, *, identity: str, created_us: int) -> Slots:
    """Return all slots of a rule, even while it suspends; it need not be in the queue."""
    timing = msgspec.structs.replace(rule.timing, suspend=False, suspend_until_us=None)
    free = msgspec.structs.replace(rule, timing=timing)
    return slots.for_rule(free, identity=identity, created_us=created_us)


def is_storable(slot_us: int) -> bool:
    """Whether the queue can hold a slot: from 1970 to September 2112."""
    return 0 <= slot_us < points.DUE_LIMIT_US


def fitted(slot_us: int, *, whole_seconds: bool) -> int:
    """Return a trigger's slot, rounded down to seconds for a Job, to milliseconds for others."""
    return slot_us - slot_us % (_SECOND_US if whole_seconds else _MILLISECOND_US)


def left(wanted: Wanted, line: Slots, cursor_us: int | None = None) -> int:
    """Return how many requested slots come after the cursor; None = none is in the queue yet."""
    match wanted.slots:
        case Trigger():
            return int(cursor_us is None)
        case Backfill() as range_:
            after_us, through_us = _open_part(range_, cursor_us)
            return line.count(after_us, through_us)


def following(
    wanted: Wanted, line: Slots, cursor_us: int | None, *, whole_seconds: bool
) -> Iterator[int]:
    """Yield the slots after the cursor, in the order of entering the queue."""
    match wanted.slots:
        case Trigger(slot_us=slot_us):
            if cursor_us is None:
                yield fitted(slot_us, whole_seconds=whole_seconds)
        case Backfill() as range_:
            after_us, through_us = _open_part(range_, cursor_us)
            if range_.newest_first:
                yield from line.walk_back(through_us, after_us)
            else:
                yield from line.walk(after_us, through_us)


def is_after(wanted: Wanted, slot_us: int, cursor_us: int | None) -> bool:
    """Whether the slot enters the queue after the cursor's."""
    if cursor_us is None:
        return True
    if isinstance(wanted.slots, Backfill) and wanted.slots.newest_first:
        return slot_us < cursor_us
    return slot_us > cursor_us


def _open_part(range_: Backfill, cursor_us: int | None) -> tuple[int, int]:
    """Return the part of the range that is left, as (after, through]."""
    if cursor_us is None:
        return range_.from_us - 1, range_.through_us
    if range_.newest_first:
        return range_.from_us - 1, min(cursor_us - 1, range_.through_us)
    return max(cursor_us, range_.from_us - 1), range_.through_us
