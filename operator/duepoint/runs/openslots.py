"""The slots of one schedule that have not ended although later ones may have.

A slot is open from the moment its chain moves on without it (handed over to an attempt of its own,
put off, or tried without success) until an event ends it. A status lists the open slots at or below
the watermark; the watermark stays below those beyond ``watermark.MOST_LISTED``. So an index that is
lost with open slots is rebuilt with them. Events arrive at least once and out of order: what is put
off again is updated, what has ended twice has ended once.

Mutable, because a catch-up may open ten thousand at once; pure otherwise. Instants in microseconds
since the epoch.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from duepoint.runs.watermark import MOST_LISTED, NOTHING, Watermark

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
            for slot_us in itertools.takewhile(lambda one: one <= through_us, self._order)
        ]
        return Watermark(
            through_us=through_us,
            started_us=tuple([one.slot_us for one in listed if one.started]),
            waiting_us=tuple(
                [one.slot_us for one in listed if not (one.started or one.superseded)]
            ),
        )

    def load(self, settled: Watermark, now_us: int) -> None:
        """What an earlier process wrote as open is open; later news of it are kept."""
        for slots_us, started in ((settled.started_us, True), (settled.waiting_us, False)):
            for slot_us in slots_us:
                if slot_us not in self._by_slot:
                    self.put(
                        OpenSlot(slot_us=slot_us, due_us=slot_us, told_us=now_us, started=started)
                    )

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
            if _may_be_late(one) and not _is_late(one, now_us)
        )
        return min(dues, default=None)


def _listing(slot: OpenSlot) -> tuple[bool, bool]:
    """What a status tells of it beside its instant."""
    return slot.started, slot.superseded


def _may_be_late(slot: OpenSlot) -> bool:
    """What has started was not late in starting, whatever it waits for now."""
    return bool(slot.reason) and not slot.started


def _is_late(slot: OpenSlot, now_us: int) -> bool:
    return _may_be_late(slot) and now_us >= slot.due_us + OVERDUE_US
