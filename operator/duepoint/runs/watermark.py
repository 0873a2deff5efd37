"""The watermark of a schedule, with its open slots: which slots have ended.

A slot has ended when it was delivered, rejected, given up, missed, skipped or superseded; the slot
of a Job when its Job exists, because the Job's name proves it. The watermark means "every slot up
to here has ended, except the open ones". Watermark and open slots belong to one moment: they follow
from events, are read from the queue when a status is rendered (``controller.status.folding``),
and are written and read back together. The rebuild of a lost index and the history limits of Jobs
ask a ``Watermark`` whether a slot has ended. By the status, no slot above the watermark has been
handed over: the chain of a rebuilt index begins there.

A slot is open from the moment its chain moves on without it (handed over to an attempt of its own,
put off, or tried without success) until it has ended. If there are more open slots than
``MOST_LISTED``, the watermark stays below the others, so that a rebuilt index has all of them.

Pure. Instants in microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

#: The most open slots that a status lists; the watermark stays below any others.
MOST_LISTED = 200


@dataclass(frozen=True, slots=True)
class Watermark:
    """Which of a schedule's regular slots have ended.

    Attributes:
        through_us: the watermark; 0 = no slot has ended.
        started_us: open slots with at least one attempt, oldest first.
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


# -- open slots ----------------------------------------------------------------------------------

#: A slot is overdue when it is late by this.
OVERDUE_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlot:
    """A slot that has not ended.

    Attributes:
        due_us: when its first attempt was due; lateness counts from there.
        reason, message: why it was put off; empty until it was tried.
        started: whether it has had at least one attempt.
        superseded: whether an edit of the timing has ended it, unless it has started; not listed.
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
        """Whether it was put off and has not started; a started slot is never late."""
        return bool(self.reason) and not self.started


#: The open slots of one schedule, oldest first.
OpenSlots = tuple[OpenSlot, ...]


def listable_us(slots: OpenSlots, through_us: int) -> int:
    """Return the highest watermark, at most this one, that lets all open slots be listed."""
    listed = [slot.slot_us for slot in slots if slot.is_listed]
    return through_us if len(listed) <= MOST_LISTED else min(through_us, listed[MOST_LISTED] - 1)


def settled(slots: OpenSlots, through_us: int) -> Watermark:
    """Return the ``Watermark`` at this instant, with its open slots."""
    listed = [slot for slot in slots if slot.is_listed and slot.slot_us <= through_us]
    return Watermark(
        through_us=through_us,
        started_us=tuple([slot.slot_us for slot in listed if slot.started]),
        waiting_us=tuple([slot.slot_us for slot in listed if not slot.started]),
    )


def open_slots(known: Watermark) -> OpenSlots:
    """Return the open slots that were written with a watermark."""
    started_us = frozenset(known.started_us)
    return tuple(
        OpenSlot(slot_us=slot_us, due_us=slot_us, started=slot_us in started_us)
        for slot_us in known.open_us
    )


def joined(slots: OpenSlots, more: Iterable[OpenSlot]) -> OpenSlots:
    """Return the open slots with these added; a started slot stays started."""
    by_slot = {slot.slot_us: slot for slot in slots}
    for slot in more:
        former = by_slot.get(slot.slot_us, slot)
        by_slot[slot.slot_us] = replace(slot, started=slot.started or former.started)
    return tuple(by_slot[slot_us] for slot_us in sorted(by_slot))


def without(slots: OpenSlots, slot_us: int, *, since_us: int = 0) -> OpenSlots:
    """Return the open slots without this one; with ``since_us``, without all from there to it."""
    first_us = since_us if 0 < since_us < slot_us else slot_us
    return tuple(slot for slot in slots if not first_us <= slot.slot_us <= slot_us)


def overdue(slots: Iterable[OpenSlot], now_us: int) -> OpenSlot | None:
    """Return the oldest slot that was put off and is late by a minute."""
    late = (slot for slot in slots if slot.may_be_late and now_us >= slot.due_us + OVERDUE_US)
    return next(late, None)
