"""The progress of a ScheduleRun, and its status: rendered from that, and read back.

A slot is *opened* when it is enqueued, and is open until its run has ended. A cursor names the slot
opened last, so no entry is needed for earlier slots that have ended, or for later ones. Counts are
exact although events may be applied repeatedly and in any order: only an open slot can end, and it
ends once. The ledger in Redis has a record of it (``pack``), changed by the scripts that enqueue
the slots and that count their outcomes; the status shows nearly the same, and is what is left if
Redis loses its data.

``rendered`` returns the whole status; ``read`` parses what a former leader published. Counters, the
cursor and the open slots survive that unchanged. The functions between the two return verdicts: the
state of a ScheduleRun as conditions and as a sentence. No I/O, no clock.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from duepoint.controller.status import published
from duepoint.controller.statusconditions import known_reason
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.manualruns import Trigger, Wanted


class RunSlot(msgspec.Struct, kw_only=True, array_like=True, omit_defaults=True):
    """A slot that has not ended.

    Attributes:
        started_us: when its run began; 0 = not yet.
        job_name: the name of its Job, once known.
        trouble: why it waits, or is tried again, in words; empty = neither.
    """

    started_us: int = 0
    job_name: str = ""
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
            _start_slot(course, slot, event)
            slot.trouble = event.why if event.is_retrying else ""
        case RunState.PENDING if event.why and not slot.started_us:
            slot.trouble = event.why
        case RunState.SUCCEEDED | RunState.FAILED | RunState.REPLACED:
            _start_slot(course, slot, event)
            _end_slot(course, event)
        case RunState.MISSED | RunState.SUPERSEDED | RunState.SKIPPED:
            _end_slot(course, event)
    return slot != former or event.slot_us not in course.open


def _start_slot(course: Progress, slot: RunSlot, event: RunEvent) -> None:
    slot.job_name = event.job_name or slot.job_name
    if not slot.started_us:
        slot.started_us = event.begun_us
        course.started += 1
        course.first_us = min(course.first_us or slot.started_us, slot.started_us)


def _end_slot(course: Progress, event: RunEvent) -> None:
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
            course.trouble = f"{published.instant(event.slot_us)} {event.why}"


# -- the status ----------------------------------------------------------------------------------

_NEWEST_FAILURE = "; newest failure: "


#: Where a ScheduleRun stands: its conditions, all with the same message.
Verdict = tuple[Condition, ...]


class _Slot(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    scheduled_time: str = ""
    start_time: str = ""
    job_name: str = ""
    trouble: str = ""


class _Counts(msgspec.Struct, frozen=True, kw_only=True):
    planned: int | None = None
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    replaced: int | msgspec.UnsetType = msgspec.UNSET


_ENDS = frozenset({ConditionType.COMPLETE.value, ConditionType.FAILED.value})


class RunStatus(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """``.status`` of a ScheduleRun; fields with their default value are left out."""

    observed_generation: int = -1
    conditions: list[dict[str, Any]] = []
    message: str = ""
    schedule_uid: str = ""
    runs: _Counts | None = None
    cursor: str = ""
    active: tuple[_Slot, ...] = ()
    start_time: str = ""
    completion_time: str = ""

    @property
    def ended_us(self) -> int | None:
        """When it ended; None = not yet."""
        for condition in self.conditions:
            if condition.get("type") in _ENDS and condition.get("status") == "True":
                return published.instant_us(self.completion_time)
        return None

    @property
    def cursor_us(self) -> int | None:
        """The slot that was opened last."""
        return published.instant_us(self.cursor) if self.cursor else None

    def course(self) -> Progress:
        """Return the published progress; its open slots may have been lost."""
        counts = self.runs or _Counts()
        _, _, trouble = self.message.partition(_NEWEST_FAILURE)
        return Progress(
            started=counts.started,
            succeeded=counts.succeeded,
            failed=counts.failed,
            replaced=counts.replaced or 0,
            skipped=counts.skipped,
            cursor_us=self.cursor_us,
            open={
                published.instant_us(slot.scheduled_time): RunSlot(
                    started_us=published.instant_us(slot.start_time),
                    job_name=slot.job_name,
                    trouble=slot.trouble,
                )
                for slot in self.active
            },
            first_us=published.instant_us(self.start_time),
            trouble=trouble,
            schedule_uid=self.schedule_uid,
        )


def read(status: bytes) -> RunStatus:
    """Parse a published status; an empty one if it is not ours."""
    try:
        return msgspec.json.decode(status, type=RunStatus)
    except msgspec.DecodeError:
        return RunStatus()


# -- judging -----------------------------------------------------------------------------------


def has_ended(verdict: Verdict) -> bool:
    """Whether no run of the ScheduleRun will start any more."""
    return any(one.type in _ENDS for one in verdict)


def cut_off(wanted: Wanted, schedule: str, course: Progress, planned: int | None) -> Verdict:
    """Return the verdict once its Schedule is deleted: no run starts, and none is awaited."""
    planned = course.opened if planned is None else planned
    if course.ended >= planned and not course.failed:
        return _ended(wanted, course, planned)
    said = (
        f"Schedule {schedule} was deleted: of {_runs(planned)} {course.succeeded} succeeded, "
        f"{course.failed} failed{_replaced_and_skipped(course)}"
    )
    if course.open:
        said += f", {len(course.open)} had not ended"
    if left := max(0, planned - course.opened):
        said += f", {left} never started"
    return failed(Reason.SCHEDULE_NOT_FOUND, said + _newest_failure(course))


def of_progress(wanted: Wanted, course: Progress, planned: int) -> Verdict:
    """Return the verdict on a ScheduleRun whose Schedule exists, from its progress."""
    if course.ended >= planned and not course.open:
        return _ended(wanted, course, planned)
    started = [one for one in course.open.values() if one.started_us]
    retried = [one.trouble for one in started if one.trouble]
    running = len(started) - len(retried)
    said = f"{course.ended} of {planned} slots ended, {running} running"
    if retried:
        said += f", {len(retried)} tried again: {retried[-1]}"
    if waits := [one.trouble for one in course.open.values() if one.trouble and not one.started_us]:
        said += f"; waiting: {waits[-1]}"
    said += _newest_failure(course)
    reason = Reason.RETRYING if retried and not running else Reason.RUNNING
    return conditions.reconciling(reason, said)


def _ended(wanted: Wanted, course: Progress, planned: int) -> Verdict:
    if course.failed:
        said = f"{course.failed} of {_runs(planned)} failed{_newest_failure(course)}"
        return failed(Reason.RUN_FAILED, said)
    if course.replaced and isinstance(wanted.slots, Trigger):
        said = "the run was replaced: a newer slot took its place"
        return failed(Reason.REPLACED, said)
    if course.skipped and isinstance(wanted.slots, Trigger):
        reason = known_reason(course.skip_reason, Reason.RUN_FAILED)
        return failed(reason, f"the run was skipped: {course.skip_message or reason}")
    said = "there is no slot in the range"
    if planned:
        said = f"{course.succeeded} of {_runs(planned)} succeeded"
    said += _replaced_and_skipped(course)
    complete = conditions.true(ConditionType.COMPLETE, Reason.COMPLETED, said)
    return (*conditions.ready(Reason.COMPLETED, said), complete)


def failed(reason: Reason, said: str) -> Verdict:
    """Return the verdict on a ScheduleRun with a failed run, or one that cannot run at all."""
    return (*conditions.stalled(reason, said), conditions.true(ConditionType.FAILED, reason, said))


def _replaced_and_skipped(course: Progress) -> str:
    """Return the part of a message that counts replaced and skipped runs, if there are any."""
    said = f", {course.replaced} replaced" if course.replaced else ""
    return said + (f", {course.skipped} skipped ({course.skip_reason})" if course.skipped else "")


def _newest_failure(course: Progress) -> str:
    return f"{_NEWEST_FAILURE}{course.trouble}" if course.trouble else ""


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


# -- writing -----------------------------------------------------------------------------------


def rendered(
    verdict: Verdict, course: Progress, *, planned: int | None, generation: int, now_us: int,
    previous: RunStatus,
) -> RunStatus:  # fmt: skip
    """Return the whole status.

    Args:
        planned: the number of slots in all; None if they cannot be counted.
        previous: the published status; a condition that stays true keeps its time.
    """
    is_over, now_us = has_ended(verdict), now_us - now_us % 1_000_000
    # The end of the last run; now if none ran, or its Schedule was deleted, perhaps long after.
    is_cut_off = verdict[0].reason is Reason.SCHEDULE_NOT_FOUND
    end_us = now_us if is_cut_off else course.last_us or now_us
    counts = msgspec.structs.replace(
        msgspec.convert(course, _Counts, from_attributes=True),
        planned=planned,
        replaced=course.replaced or msgspec.UNSET,
    )
    return RunStatus(
        observed_generation=generation,
        conditions=conditions.rendered(
            verdict,
            generation=generation,
            now=published.instant(now_us),
            previous=previous.conditions,
        ),
        message=verdict[0].message[: conditions.MESSAGE_LIMIT],
        schedule_uid=course.schedule_uid,
        runs=None if planned is None else counts,
        cursor="" if course.cursor_us is None else published.instant(course.cursor_us),
        active=() if is_over else tuple(_slot(at_us, one) for at_us, one in course.open.items()),
        start_time=published.instant(course.first_us) if course.first_us else "",
        completion_time=published.instant(end_us) if is_over else "",
    )


def _slot(slot_us: int, one: RunSlot) -> _Slot:
    return _Slot(
        scheduled_time=published.instant(slot_us),
        start_time=published.instant(one.started_us) if one.started_us else "",
        job_name=one.job_name,
        trouble=run.cut(one.trouble, run.CAUSE_LIMIT),
    )
