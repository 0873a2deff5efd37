"""The history of a schedule's last slots: when they were due, when they began, how they ended.

``fold(history, event)`` returns the history after an event, newest first. Each run, and each slot
that ended without one (missed, skipped), is an entry; several slots that ended alike in one event
are one entry with a count. A slot that is retried keeps its entry. Events arrive at least once and
out of order: an entry that has ended stays as it is, and an entry older than the oldest of a full
history is dropped.

Pure; instants in microseconds since the epoch, 0 = never.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from duepoint.runs.run import ENDED, REGULAR, RunEvent, RunState

#: The number of slots that a status shows.
MOST = 10
#: The longest message of an entry, in characters: every status has up to ten of them.
MESSAGE_LIMIT = 200

_WITHOUT_RUN = frozenset({RunState.MISSED, RunState.SKIPPED})
_OVER = ENDED | _WITHOUT_RUN


class PastSlot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A slot, or ``count`` slots that ended alike.

    Attributes:
        slot_us: the slot; the newest of several.
        since_us: the oldest of several; 0 = only ``slot_us`` is known.
        outcome: a ``RunState`` (Running, Succeeded, Failed, Replaced, Missed or Skipped); if read
            from a status also ``Waiting``, ``Retrying`` or a word of a later version.
        started_us: when its target was first tried or its Job was created.
    """

    slot_us: int
    outcome: str
    trigger: str = "Schedule"
    reason: str = ""
    message: str = ""
    started_us: int = 0
    finished_us: int = 0
    attempts: int = 0
    job_name: str = ""
    http_status: int | None = None
    since_us: int = 0
    count: int = 1

    @property
    def order(self) -> tuple[int, int]:
        """The sort key, greater for newer: a manual run of an old slot is as new as its start."""
        return max(self.started_us, self.slot_us), self.slot_us

    @property
    def is_over(self) -> bool:
        return self.outcome in _OVER

    @property
    def is_regular(self) -> bool:
        return self.trigger in REGULAR

    @property
    def why(self) -> str:
        """The reason; the outcome if there is none, as for a success."""
        return self.reason or self.outcome

    def covers(self, slot_us: int) -> bool:
        """Whether this is one of its slots, as far as we know them."""
        return slot_us == self.slot_us or 0 < self.since_us <= slot_us <= self.slot_us


History = tuple[PastSlot, ...]


def fold(history: History, event: RunEvent) -> History:
    """Return the history after an event."""
    if event.state not in _OVER | {RunState.RUNNING} or event.count < 1:
        return history
    known = next((entry for entry in history if _is_of(entry, event)), None)
    if known is None:
        return added(history, _entry(event))
    if known.is_over:
        return history
    others = tuple(entry for entry in history if entry is not known)
    return added(others, _updated(known, event))


def newest_run(known: PastSlot | None, event: RunEvent) -> PastSlot:
    """Return the later started of this run and the event's; update it if they are the same."""
    if known is not None and _is_of(known, event):
        return known if known.is_over else _updated(known, event)
    if known is None or (event.begun_us, event.slot_us) > (known.started_us, known.slot_us):
        return _entry(event)
    return known


def added(history: History, entry: PastSlot) -> History:
    """Return the history with another entry, if that is among the newest."""
    listed = sorted((entry, *history), key=lambda entry: entry.order, reverse=True)
    return tuple(listed[:MOST])


def _is_of(entry: PastSlot, event: RunEvent) -> bool:
    if entry.slot_us != event.slot_us:
        return False
    if entry.is_regular:
        return event.trigger in REGULAR
    is_same_job = not (entry.job_name and event.job_name) or entry.job_name == event.job_name
    return entry.trigger == event.trigger and is_same_job


def _entry(event: RunEvent) -> PastSlot:
    has_run = event.state not in _WITHOUT_RUN
    return PastSlot(
        slot_us=event.slot_us,
        trigger=event.trigger,
        outcome=event.state,
        reason=event.reason,
        message=event.message,
        started_us=(event.started_us or event.at_us) if has_run else 0,
        finished_us=event.finished_us if has_run else 0,
        attempts=event.attempts,
        job_name=event.job_name,
        http_status=event.http_status,
        since_us=event.since_us if event.count > 1 else 0,
        count=event.count,
    )


def _updated(known: PastSlot, event: RunEvent) -> PastSlot:
    newer = _entry(event)
    return replace(
        newer,
        trigger=known.trigger,
        started_us=known.started_us or newer.started_us,
        attempts=max(known.attempts, newer.attempts),
        job_name=newer.job_name or known.job_name,
        http_status=known.http_status if newer.http_status is None else newer.http_status,
    )
