"""Which slots of a schedule have ended: a watermark, and the open slots at or below it.

A slot has ended when it was delivered, rejected, given up, missed, skipped or superseded; the slot
of a Job when its Job exists, because the Job's name proves it. The watermark says "every slot up to
here has ended, except the open ones". Watermark and open slots belong to one moment: they follow
from events, are read from the queue when a status is rendered (``controller.status.openslots``),
and are written and read back together. The rebuild of a lost index and the history of Jobs ask a
``Watermark`` whether a slot has ended. A slot above the watermark has not been handed over, as far
as this status says: the chain of a rebuilt index begins with it.

A slot is open from the moment its chain moves on without it (handed over to an attempt of its own,
put off, or tried without success) until it has ended. The watermark stays below the open slots
beyond ``MOST_LISTED``. So an index that is lost with open slots is rebuilt with them.

Pure. Instants in microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

#: Open slots that a status lists; the watermark stays below what exceeds this.
MOST_LISTED = 200


@dataclass(frozen=True, slots=True)
class Watermark:
    """What has ended of a schedule's regular slots.

    Attributes:
        through_us: the watermark; 0 = no slot has ended.
        started_us: open slots that a target was asked for at least once, oldest first.
        waiting_us: open slots that have not started: planned, queued or put off, oldest first.
    """

    through_us: int = 0
    started_us: tuple[int, ...] = ()
    waiting_us: tuple[int, ...] = ()

    def has_ended(self, slot_us: int) -> bool:
        """Whether the slot has ended for good."""
        return slot_us <= self.through_us and not self.is_open(slot_us)

    def is_open(self, slot_us: int) -> bool:
        """Whether the slot is listed as open."""
        return slot_us in self.started_us or slot_us in self.waiting_us

    @property
    def open_us(self) -> tuple[int, ...]:
        """All open slots, oldest first."""
        if not self.waiting_us:
            return self.started_us
        return tuple(sorted((*self.started_us, *self.waiting_us)))


#: Nothing has ended, nothing is open.
NOTHING = Watermark()


def newest(written: Watermark, remembered: Watermark | None) -> Watermark:
    """The newer of what a status says and what this process remembers of the same schedule.

    The watermark never falls, so the larger one is newer, and its open slots with it. With equal
    watermarks memory is newer: statuses are written from it.
    """
    if remembered is None or remembered.through_us < written.through_us:
        return written
    return remembered


# -- open slots ----------------------------------------------------------------------------------

#: A slot is overdue when it is later than this.
OVERDUE_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlot:
    """A slot that has not ended.

    Attributes:
        due_us: when it was to be tried first; lateness is measured from it.
        reason, message: why it was put off; empty until it was tried.
        started: its target was asked for at least once.
        superseded: an edit of the timing has ended it unless it is under way; no status lists it.
    """

    slot_us: int
    due_us: int
    reason: str = ""
    message: str = ""
    started: bool = False
    superseded: bool = False

    @property
    def is_listed(self) -> bool:
        """Whether a status lists it."""
        return self.started or not self.superseded

    @property
    def may_be_late(self) -> bool:
        """What has started was not late in starting, even if it waits now."""
        return bool(self.reason) and not self.started

    def is_late(self, now_us: int) -> bool:
        """Whether it was put off, and is late by a minute."""
        return self.may_be_late and now_us >= self.due_us + OVERDUE_US


#: The open slots of one schedule, oldest first.
OpenSlots = tuple[OpenSlot, ...]


def listable_us(slots: OpenSlots, through_us: int) -> int:
    """The highest watermark up to this one under which all open slots can be listed."""
    listed = [slot.slot_us for slot in slots if slot.is_listed]
    return through_us if len(listed) <= MOST_LISTED else min(through_us, listed[MOST_LISTED] - 1)


def settled(slots: OpenSlots, through_us: int) -> Watermark:
    """What has ended under this watermark."""
    listed = [slot for slot in slots if slot.is_listed and slot.slot_us <= through_us]
    return Watermark(
        through_us=through_us,
        started_us=tuple([slot.slot_us for slot in listed if slot.started]),
        waiting_us=tuple([slot.slot_us for slot in listed if not slot.started]),
    )


def open_slots(known: Watermark) -> OpenSlots:
    """The open slots that were written with a watermark."""
    started_us = frozenset(known.started_us)
    return tuple(
        OpenSlot(slot_us=slot_us, due_us=slot_us, started=slot_us in started_us)
        for slot_us in known.open_us
    )


def joined(slots: OpenSlots, more: Iterable[OpenSlot]) -> OpenSlots:
    """The open slots with these; what has started stays started."""
    by_slot = {slot.slot_us: slot for slot in slots}
    for slot in more:
        former = by_slot.get(slot.slot_us, slot)
        by_slot[slot.slot_us] = replace(slot, started=slot.started or former.started)
    return tuple(by_slot[slot_us] for slot_us in sorted(by_slot))


def without(slots: OpenSlots, slot_us: int, *, since_us: int = 0) -> OpenSlots:
    """The open slots once this one has ended; with ``since_us`` every one from there to it."""
    first_us = since_us if 0 < since_us < slot_us else slot_us
    return tuple(slot for slot in slots if not first_us <= slot.slot_us <= slot_us)


def overdue(slots: Iterable[OpenSlot], now_us: int) -> OpenSlot | None:
    """The oldest slot that was put off and is late by a minute."""
    return next((slot for slot in slots if slot.is_late(now_us)), None)


def next_overdue_us(slots: Iterable[OpenSlot], now_us: int) -> int | None:
    """When the next one will be overdue."""
    waiting = (slot for slot in slots if slot.may_be_late and not slot.is_late(now_us))
    return min((slot.due_us + OVERDUE_US for slot in waiting), default=None)
