"""Which slots of a schedule have ended: a watermark, and the open slots at or below it.

A slot has ended when it was delivered, rejected, given up, missed, skipped or superseded; the slot
of a Job when its Job exists, because the Job's name proves it. The watermark says "every slot up to
here has ended, except the open ones". Watermark and open slots belong to one moment: they are
written to a status together and read back together. The rebuild of a lost index, the history of
Jobs and the comparison with a server that fell back ask a ``Watermark`` whether a slot has ended.

A slot above the watermark has not been handed over, as far as this status says: the chain of a
rebuilt index begins with it. An open slot is tried again by an occurrence of its own.

Pure. Instants in microseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

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
