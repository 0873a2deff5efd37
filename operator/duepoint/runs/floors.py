"""What the status that a process began with had counted of the runs of a schedule.

A predecessor may have counted an event that is read again. Its last status is all that shows what:
the watermark with the open slots, the newest start and ends, and the last slots one by one. Where
the last slots reach back to an event's slot they decide; below the watermark it does; elsewhere the
newest times have to, and what they cannot tell apart counts as counted. Pure; instants in
microseconds since the epoch, 0 = never.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint.runs.history import History, PastSlot
from duepoint.runs.run import ENDED, STARTED, RunEvent, RunState
from duepoint.runs.watermark import NOTHING, Watermark

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """What the loaded status already covered.

    Attributes:
        slot_us, started_us: newest slot, and newest start, of its runs.
        success_us, failure_us, replaced_us: its newest ends.
        settled: which slots had ended; it reaches as far as runs were counted, which may be less
            than the status's watermark.
        history: the last slots, newest first.
    """

    slot_us: int = 0
    started_us: int = 0
    success_us: int = 0
    failure_us: int = 0
    replaced_us: int = 0
    settled: Watermark = NOTHING
    history: History = ()

    def has_ended(self, event: RunEvent) -> bool:
        """Whether the regular slot of the event had ended, and was counted.

        That of a Job is listed as started only where the Job was seen, which counted it.
        """
        if not event.is_regular:
            return False
        was_seen = bool(event.job_name) and event.slot_us in self.settled.started_us
        return was_seen or self.settled.has_ended(event.slot_us)

    def may_have_counted_start(self, event: RunEvent) -> bool:
        """Whether the start of the event's run may be among those that were counted.

        A Job that was seen says when the API server made it, by its clock and in whole seconds.
        """
        if event.is_regular:
            if self.has_ended(event):
                return True
            if event.job_uid or event.slot_us > self.slot_us:
                return event.slot_us <= self.slot_us
            if self._reaches(event):
                return self._outcome(event) in STARTED
        return event.begun_us // _SECOND_US <= self.started_us // _SECOND_US

    def may_have_counted_end(self, event: RunEvent, *, replayed: bool) -> bool:
        """Whether the end of the event's run may be among those that were counted.

        Args:
            event: an end of a slot above the watermark, or one that is open.
            replayed: an earlier process may have counted it.
        """
        if self._reaches(event):
            return self._outcome(event) in ENDED
        if not replayed or (event.is_regular and self.settled.is_open(event.slot_us)):
            return False
        if event.is_regular and event.job_uid and event.slot_us > self.slot_us:
            return False  # not even its start; another Job's end may bear the same second
        floor_us = {
            RunState.SUCCEEDED: self.success_us,
            RunState.REPLACED: self.replaced_us,
        }.get(event.state, self.failure_us)
        return event.ended_us <= floor_us

    def has_counted_unrun(self, event: RunEvent) -> bool:
        """Whether a slot that ended without a run, or several that did, were counted."""
        if self.settled.has_ended(event.slot_us):
            return True
        return self._reaches(event) and self._outcome(event) == event.state

    def _reaches(self, event: RunEvent) -> bool:
        """Whether the last slots go back beyond that of the event.

        Their order is that of their starts, and none begins before its slot: what was left out, as
        older than the oldest, has an older slot than that began.
        """
        if not (event.is_regular and self.history):
            return False
        return event.slot_us > self.history[-1].order[0]

    def _outcome(self, event: RunEvent) -> str:
        """What the last slots say of the event's slot; empty where they do not have it."""
        shown: PastSlot | None = next(
            (one for one in self.history if one.is_regular and one.slot_us == event.slot_us), None
        )
        return "" if shown is None else shown.outcome


#: Of a schedule without a status.
UNKNOWN = Floors()
