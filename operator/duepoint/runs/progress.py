"""The progress of a ScheduleRun: its open slots, and counts of how the others ended.

A slot is *opened* when it is enqueued, and is open until its run has ended. A cursor names the slot
opened last, so no entry is needed for earlier slots that have ended, or for later ones. Counts are
exact although events may be applied repeatedly and in any order: only an open slot can end, and it
ends once.

The ledger in Redis has a record of it (``pack``), changed by the scripts that enqueue the slots and
that count their outcomes; the status shows nearly the same, and is what is left if Redis loses its
data. Mutable, because it changes with every event; no I/O, no clock. ``schedules.manualruns``
computes the slots.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from duepoint.runs.run import RunEvent, RunState


class RunSlot(msgspec.Struct, kw_only=True, array_like=True, omit_defaults=True):
    """A slot that has not ended.

    Attributes:
        started_us: when its run began; 0 = not yet.
        job_name: the name of its Job, once known.
        is_replaced: whether a worker was about to delete its Job in favour of a newer slot.
        trouble: why its delivery failed and is retried, in words; empty = it runs.
    """

    started_us: int = 0
    job_name: str = ""
    is_replaced: bool = False
    trouble: str = ""


class Progress(msgspec.Struct, kw_only=True, array_like=True):
    """The progress of one ScheduleRun.

    Attributes:
        cursor_us: the slot opened last; None = none.
        open: open slots.
        first_us, last_us: when the first run began and the last one ended; 0 = not yet.
        trouble: the newest failure, in words.
        skip_reason, skip_message: why the newest skipped slot was skipped.
        waits_for: what open slots wait for, in words; empty = they run.
    """

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    replaced: int = 0
    skipped: int = 0
    cursor_us: int | None = None
    open: dict[int, RunSlot] = msgspec.field(default_factory=dict)
    first_us: int = 0
    last_us: int = 0
    trouble: str = ""
    skip_reason: str = ""
    skip_message: str = ""
    waits_for: str = ""

    @property
    def ended(self) -> int:
        """The number of slots that have ended, in any way."""
        return self.succeeded + self.failed + self.replaced + self.skipped

    @property
    def opened(self) -> int:
        """The number of slots opened so far."""
        return self.ended + len(self.open)


_decoder = msgspec.msgpack.Decoder(Progress)

#: Returns the record of a progress for the ledger.
pack = msgspec.msgpack.Encoder().encode


def newest(written: Progress, *records: bytes) -> Progress:
    """Return the newest of a status's progress and of records; the last one if all are equal.

    No count falls, so the one with the highest counts is the newest. The status is newer only if
    Redis went back.
    """
    known = [written]
    for record in records:
        try:
            known.append(_decoder.decode(record))
        except msgspec.DecodeError:
            continue  # another version has written it
    return max(reversed(known), key=lambda one: one.opened + one.ended + one.started)


def opened(course: Progress, slot_us: int) -> None:
    """Open a slot, and move the cursor to it."""
    course.cursor_us = slot_us
    course.open[slot_us] = RunSlot()


def applied(course: Progress, event: RunEvent) -> bool:
    """Apply an event; return False if it changes nothing."""
    slot = course.open.get(event.slot_us)
    if slot is None:
        return False
    match event.state:
        case RunState.RUNNING:
            is_news = _notes_trouble(slot, event)
            return _started(course, slot, event) or is_news
        case RunState.SUCCEEDED | RunState.FAILED | RunState.REPLACED:
            _started(course, slot, event)
            _ended(course, event)
        case RunState.MISSED | RunState.SUPERSEDED | RunState.SKIPPED:
            _ended(course, event)
        case RunState.PENDING:
            return _waits(course, slot, event)
        case RunState.REPLACING:
            slot.is_replaced = True
        case RunState.CHECKED:
            return False
    return True


def _started(course: Progress, slot: RunSlot, event: RunEvent) -> bool:
    slot.job_name = event.job_name or slot.job_name
    if slot.started_us:
        return False
    slot.started_us = event.started_us or event.at_us
    course.started += 1
    course.waits_for = ""
    course.first_us = min(course.first_us or slot.started_us, slot.started_us)
    return True


def _notes_trouble(slot: RunSlot, event: RunEvent) -> bool:
    """Update why its run is being retried, if it is; return whether that has changed."""
    former = slot.trouble
    slot.trouble = event.why if event.is_retrying else ""
    return slot.trouble != former


def _ended(course: Progress, event: RunEvent) -> None:
    del course.open[event.slot_us]
    course.waits_for = ""
    course.last_us = max(course.last_us, event.finished_us or event.at_us)
    match event.state:
        case RunState.SUCCEEDED:
            course.succeeded += 1
        case RunState.REPLACED:
            course.replaced += 1
        case RunState.SKIPPED:
            course.skipped += 1
            course.skip_reason, course.skip_message = event.reason, event.message
        case _:
            course.failed += 1
            course.trouble = f"{_instant(event.slot_us)} {event.why}"


def _waits(course: Progress, slot: RunSlot, event: RunEvent) -> bool:
    if event.why in ("", course.waits_for) or slot.started_us:
        return False
    course.waits_for = event.why
    return True


def _instant(slot_us: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=slot_us)  # noqa: DTZ001 - UTC
    return f"{moment.isoformat(timespec='auto')}Z"
