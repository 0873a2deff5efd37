"""The slots of one schedule that have not ended although later ones may have.

A slot is open from the moment its chain moves on without it (handed over to an attempt of its own,
or put off) until an event ends it. The watermark stays below the oldest open one, so that an index
that is lost with it is rebuilt with it. Events arrive at least once and out of order: what is put
off again is updated, what has ended twice has ended once.

Mutable, because a catch-up may open ten thousand at once; pure otherwise. Instants in microseconds
since the epoch.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: A slot is overdue when it is later than this.
OVERDUE_US = 60_000_000

#: An open slot of which nobody has told for so long, and which the queue does not hold, has ended
#: without a word (its event was lost with a full stream).
_FORGET_AFTER_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlot:
    """A slot that has not ended.

    Attributes:
        due_us: slot plus jitter; lateness is measured from it.
        reason, message: why it was put off; empty while nobody has tried it.
        told_us: when we last heard of it.
    """

    slot_us: int
    due_us: int
    told_us: int
    reason: str = ""
    message: str = ""


#: Of the many schedules that never had an open slot; nothing is put into these.
_NO_SLOTS: dict[int, OpenSlot] = {}
_NO_HEAP: list[int] = []


class OpenSlots:
    """The open slots of one schedule."""

    __slots__ = ("_by_slot", "_heap")

    def __init__(self) -> None:
        self._by_slot, self._heap = _NO_SLOTS, _NO_HEAP

    def __len__(self) -> int:
        return len(self._by_slot)

    def __contains__(self, slot_us: int) -> bool:
        return slot_us in self._by_slot

    def put(self, slot: OpenSlot) -> None:
        """The slot has not ended; the reason of an earlier try stays where none is given."""
        if self._heap is _NO_HEAP:
            self._by_slot, self._heap = {}, []
        known = self._by_slot.get(slot.slot_us)
        if known is None:
            heapq.heappush(self._heap, slot.slot_us)
        elif not slot.reason:
            slot = OpenSlot(
                slot_us=slot.slot_us,
                due_us=slot.due_us,
                told_us=slot.told_us,
                reason=known.reason,
                message=known.message,
            )
        self._by_slot[slot.slot_us] = slot

    def end(self, slot_us: int, *, since_us: int = 0) -> None:
        """The slot has ended; with ``since_us`` every one from there to it."""
        self._by_slot.pop(slot_us, None)
        if 0 < since_us < slot_us and self._by_slot:
            for other in [one for one in self._by_slot if since_us <= one <= slot_us]:
                del self._by_slot[other]

    def oldest_us(self) -> int | None:
        """The oldest open slot."""
        while self._heap and self._heap[0] not in self._by_slot:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def oldest_reason(self) -> str:
        """Why the oldest open slot was put off; empty where there is none or nobody has tried."""
        oldest_us = self.oldest_us()
        return "" if oldest_us is None else self._by_slot[oldest_us].reason

    def compare(self, held: Iterable[OpenSlot], *, passed_us: int, began_us: int) -> None:
        """Take over what the queue was found to hold.

        Args:
            held: open slots of this schedule in the queue.
            passed_us: the watermark; what lies below it is not opened by this.
            began_us: before this the reading had not begun.
        """
        found: Mapping[int, OpenSlot] = {slot.slot_us: slot for slot in held}
        for slot in found.values():
            known = self._by_slot.get(slot.slot_us)
            if slot.slot_us > passed_us if known is None else not known.reason:
                self.put(slot)
        for known in list(self._by_slot.values()):
            if known.slot_us in found or known.told_us >= began_us:
                continue
            # Not held any more: its end is on its way to us. After the loss of an index the chain
            # stands at or below it again, and hours may pass before a worker takes it up.
            is_forgotten = known.told_us < began_us - _FORGET_AFTER_US
            if known.slot_us <= passed_us or is_forgotten:
                self.end(known.slot_us)

    def overdue(self, now_us: int) -> OpenSlot | None:
        """The oldest slot that was put off and is late by a minute."""
        oldest_us = self.oldest_us()
        if oldest_us is not None and _is_late(self._by_slot[oldest_us], now_us):
            return self._by_slot[oldest_us]  # nearly always, and there may be thousands
        late = (one for one in self._by_slot.values() if _is_late(one, now_us))
        return min(late, key=lambda one: one.slot_us, default=None)

    def next_overdue_us(self, now_us: int) -> int | None:
        """When the next one will be overdue."""
        dues = (
            one.due_us + OVERDUE_US
            for one in self._by_slot.values()
            if one.reason and not _is_late(one, now_us)
        )
        return min(dues, default=None)


def _is_late(slot: OpenSlot, now_us: int) -> bool:
    return bool(slot.reason) and now_us >= slot.due_us + OVERDUE_US
