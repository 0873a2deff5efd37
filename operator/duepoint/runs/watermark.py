"""Which slots of a schedule have ended: a watermark, and the open slots at or below it.

A slot has ended when it was delivered, rejected, given up, missed, skipped or superseded; the slot
of a Job when its Job exists, because the Job's name proves it. The watermark says "every slot up to
here has ended, except the open ones". Watermark and open slots belong to one moment: they are
written to a status together and read back together. The rebuild of a lost index, the history of
Jobs and the comparison with a server that fell back ask a ``Watermark`` whether a slot has ended.
A slot above the watermark has not been handed over, as far as this status says: the chain of a
rebuilt index begins with it. An open slot is tried again by an occurrence of its own.

A slot is open from the moment its chain moves on without it (handed over to an attempt of its own,
put off, or tried without success) until an event ends it. The watermark stays below the open slots
beyond ``MOST_LISTED``. So an index that is lost with open slots is rebuilt with them. Events arrive
at least once and out of order: what is put off again is updated, what has ended twice has ended
once. ``OpenSlots`` is mutable, because a catch-up may open ten thousand at once.

Pure. Instants in microseconds since the epoch.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping
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

#: An open slot without an event for so long, which the queue does not hold either, has ended
#: without a word (its event was lost with a full stream).
_FORGET_AFTER_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlot:
    """A slot that has not ended.

    Attributes:
        due_us: slot plus jitter; lateness is measured from it.
        reason, message: why it was put off; empty until it was tried.
        told_us: when we last heard of it.
        started: its target was asked for at least once.
        superseded: an edit of the timing has ended it unless it is under way; no status lists it.
    """

    slot_us: int
    due_us: int
    told_us: int
    reason: str = ""
    message: str = ""
    started: bool = False
    superseded: bool = False

    @property
    def is_listed(self) -> bool:
        """Whether a status lists it."""
        return self.started or not self.superseded


#: Of the many schedules that never had an open slot; nothing is put into these.
_NO_SLOTS: dict[int, OpenSlot] = {}
_NO_ORDER: list[int] = []


class OpenSlots:
    """The open slots of one schedule."""

    __slots__ = ("_by_slot", "_order")

    def __init__(self) -> None:
        self._by_slot, self._order = _NO_SLOTS, _NO_ORDER

    def __len__(self) -> int:
        return len(self._by_slot)

    def __contains__(self, slot_us: int) -> bool:
        return slot_us in self._by_slot

    def put(self, slot: OpenSlot) -> bool:
        """The slot has not ended; True where a status lists it from now on, or lists it otherwise.

        The reason of an earlier try stays where none is given, and what has started stays started.
        """
        if self._order is _NO_ORDER:
            self._by_slot, self._order = {}, []
        former = self._by_slot.get(slot.slot_us)
        if former is None:
            bisect.insort(self._order, slot.slot_us)
        else:
            slot = replace(
                slot,
                reason=slot.reason or former.reason,
                message=slot.message if slot.reason else former.message,
                started=slot.started or former.started,
            )
        self._by_slot[slot.slot_us] = slot
        return former is None or _listing(former) != _listing(slot)

    def end(self, slot_us: int, *, since_us: int = 0) -> None:
        """The slot has ended; with ``since_us`` every one from there to it."""
        if not self._by_slot:
            return
        first_us = since_us if 0 < since_us < slot_us else slot_us
        low = bisect.bisect_left(self._order, first_us)
        high = bisect.bisect_right(self._order, slot_us)
        for ended_us in self._order[low:high]:
            del self._by_slot[ended_us]
        del self._order[low:high]

    def supersede(self) -> None:
        """An edit of the timing has ended what was planned or queued; retries go on."""
        for slot in list(self._by_slot.values()):
            if not (slot.started or slot.reason or slot.superseded):
                self._by_slot[slot.slot_us] = replace(slot, superseded=True)

    def oldest_us(self) -> int | None:
        """The oldest open slot."""
        return self._order[0] if self._order else None

    def ceiling_us(self) -> int | None:
        """The highest watermark under which all open slots can be listed; None = no limit."""
        if len(self._order) <= MOST_LISTED:
            return None
        return self._order[MOST_LISTED] - 1

    def settled(self, through_us: int) -> Watermark:
        """What has ended under this watermark."""
        if not self._order:
            return Watermark(through_us) if through_us else NOTHING
        listed = [
            self._by_slot[slot_us]
            for slot_us in itertools.takewhile(lambda slot_us: slot_us <= through_us, self._order)
            if self._by_slot[slot_us].is_listed
        ]
        started = [slot.slot_us for slot in listed if slot.started]
        waiting = [slot.slot_us for slot in listed if not slot.started]
        return Watermark(
            through_us=through_us, started_us=tuple(started), waiting_us=tuple(waiting)
        )

    def load(self, settled: Watermark, now_us: int) -> None:
        """What an earlier process wrote as open is open; later news of it are kept."""
        for slots_us, started in ((settled.started_us, True), (settled.waiting_us, False)):
            for slot_us in slots_us:
                if slot_us not in self._by_slot:
                    self.put(
                        OpenSlot(slot_us=slot_us, due_us=slot_us, told_us=now_us, started=started)
                    )

    def keep(self, settled: Watermark) -> None:
        """What has ended by this is not open."""
        for slot_us in [one for one in self._order if settled.has_ended(one)]:
            self.end(slot_us)

    def compare(self, held: Iterable[OpenSlot], *, began_us: int) -> None:
        """Take over what the queue was found to hold.

        Args:
            held: open slots of this schedule in the queue, those left out that have ended.
            began_us: before this the reading had not begun.
        """
        found: Mapping[int, OpenSlot] = {slot.slot_us: slot for slot in held}
        for slot in found.values():
            former = self._by_slot.get(slot.slot_us)
            if former is None or not former.reason or slot.started > former.started:
                self.put(slot)
        for former in list(self._by_slot.values()):
            # Not held any more: its end is on its way to us, or its index was lost and is being
            # rebuilt. Only a long silence says that its end was lost.
            if former.slot_us not in found and former.told_us < began_us - _FORGET_AFTER_US:
                self.end(former.slot_us)

    def waiting(self, most: int) -> list[OpenSlot]:
        """The newest slots that have not started, at most so many, newest first."""
        newest_first = (self._by_slot[slot_us] for slot_us in reversed(self._order))
        have_not_started = (slot for slot in newest_first if _may_wait(slot))
        return list(itertools.islice(have_not_started, most))

    def overdue(self, now_us: int) -> OpenSlot | None:
        """The oldest slot that was put off and is late by a minute."""
        oldest_us = self.oldest_us()
        if oldest_us is not None and _is_late(self._by_slot[oldest_us], now_us):
            return self._by_slot[oldest_us]  # nearly always, and there may be thousands
        late = (slot for slot in self._by_slot.values() if _is_late(slot, now_us))
        return min(late, key=lambda slot: slot.slot_us, default=None)

    def next_overdue_us(self, now_us: int) -> int | None:
        """When the next one will be overdue."""
        dues = (
            slot.due_us + OVERDUE_US
            for slot in self._by_slot.values()
            if _may_be_late(slot) and not _is_late(slot, now_us)
        )
        return min(dues, default=None)


def _listing(slot: OpenSlot) -> tuple[bool, bool]:
    """What a status says of it beside its instant."""
    return slot.started, slot.is_listed


def _may_wait(slot: OpenSlot) -> bool:
    return not (slot.started or slot.superseded)


def _may_be_late(slot: OpenSlot) -> bool:
    """What has started was not late in starting, even if it waits now."""
    return bool(slot.reason) and not slot.started


def _is_late(slot: OpenSlot, now_us: int) -> bool:
    return _may_be_late(slot) and now_us >= slot.due_us + OVERDUE_US
