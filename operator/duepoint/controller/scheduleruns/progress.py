"""The progress of a ScheduleRun: its open slots, and counts of how the others ended.

A slot is *opened* when it is enqueued, and is open until its run has ended. A cursor names the slot
opened last, so no entry is needed for earlier slots that have ended, or for later ones. Counts are
exact although events may be applied repeatedly and in any order: only an open slot can end, and it
ends once.

The ledger in Redis has a record of it (``pack``), changed by the scripts that enqueue the slots and
that count their outcomes; the status shows nearly the same, and is what is left if Redis loses its
data. Mutable, because it changes with every event; no I/O, no clock.
"""

from __future__ import annotations

import copy

import msgspec

from duepoint.controller.status import texts
from duepoint.runs.run import RunEvent, RunState


class RunSlot(msgspec.Struct, kw_only=True, array_like=True, omit_defaults=True):
    """A slot that has not ended.

    Attributes:
        started_us: when its run began; 0 = not yet.
        job_name: the name of its Job, once known.
        is_replaced: whether a worker was about to delete its Job in favour of a newer slot.
        trouble: why it waits, or is tried again, in words; empty = neither.
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
        schedule_uid: the Schedule that it belongs to, once found.
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
    schedule_uid: str = ""

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


def applied(course: Progress, event: RunEvent) -> bool:
    """Apply an event; return False if it changes nothing."""
    slot = course.open.get(event.slot_us)
    if slot is None:
        return False
    former = copy.copy(slot)
    match event.state:
        case RunState.RUNNING:
            _start(course, slot, event)
            slot.trouble = event.why if event.is_retrying else ""
        case RunState.PENDING if event.why and not slot.started_us:
            slot.trouble = event.why
        case RunState.REPLACING:
            slot.is_replaced = True
        case RunState.SUCCEEDED | RunState.FAILED | RunState.REPLACED:
            _start(course, slot, event)
            _end(course, event)
        case RunState.MISSED | RunState.SUPERSEDED | RunState.SKIPPED:
            _end(course, event)
    return slot != former or event.slot_us not in course.open


def _start(course: Progress, slot: RunSlot, event: RunEvent) -> None:
    slot.job_name = event.job_name or slot.job_name
    if not slot.started_us:
        slot.started_us = event.begun_us
        course.started += 1
        course.first_us = min(course.first_us or slot.started_us, slot.started_us)


def _end(course: Progress, event: RunEvent) -> None:
    del course.open[event.slot_us]
    course.last_us = max(course.last_us, event.ended_us)
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
            course.trouble = f"{texts.instant(event.slot_us)} {event.why}"
