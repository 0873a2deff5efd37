"""The status of a ScheduleRun: rendered from its progress, and read back by the next leader.

``rendered`` returns the whole status; ``read`` parses what a former leader published. Counters, the
cursor and the open slots survive that unchanged. The functions between the two return verdicts: the
standing of a ScheduleRun as conditions and as a sentence. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from duepoint.controller.scheduleruns.progress import Progress, RunSlot
from duepoint.controller.status import texts
from duepoint.controller.statusconditions import known_reason
from duepoint.runs import run
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.manualruns import Trigger, Wanted

_NEWEST_FAILURE = "; newest failure: "


#: Where a ScheduleRun stands: its conditions, all with the same message.
Verdict = tuple[Condition, ...]


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Slot(msgspec.Struct, frozen=True, rename="camel"):
    scheduled_time: str = ""
    start_time: str = ""
    job_name: str = ""
    trouble: str = ""


class _Counts(msgspec.Struct, frozen=True):
    planned: int | None = None
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    replaced: int = 0
    skipped: int = 0


_ENDS = frozenset({ConditionType.COMPLETE.value, ConditionType.FAILED.value})


class PublishedRunStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A published status, as ``read`` returns it."""

    conditions: tuple[_Condition, ...] | None = None
    schedule_uid: str = ""
    runs: _Counts | None = None
    cursor: str | None = None
    active: tuple[_Slot, ...] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    message: str = ""

    @property
    def ended_us(self) -> int | None:
        """When it ended; None = not yet."""
        for condition in self.conditions or ():
            if condition.type in _ENDS and condition.status == "True":
                return texts.instant_us(self.completion_time)
        return None

    @property
    def open_us(self) -> frozenset[int]:
        """The slots that it shows as open."""
        return frozenset(texts.instant_us(slot.scheduled_time) for slot in self.active or ())

    @property
    def cursor_us(self) -> int | None:
        """The slot that was opened last."""
        return texts.instant_us(self.cursor) if self.cursor else None

    @property
    def planned(self) -> int | None:
        """How many slots it had in all when they were last counted."""
        return None if self.runs is None else self.runs.planned

    def course(self) -> Progress:
        """Return the published progress; its open slots may have been lost."""
        counts = self.runs or _Counts()
        _, _, trouble = self.message.partition(_NEWEST_FAILURE)
        slots = {texts.instant_us(slot.scheduled_time): slot for slot in self.active or ()}
        return Progress(
            started=counts.started,
            succeeded=counts.succeeded,
            failed=counts.failed,
            replaced=counts.replaced,
            skipped=counts.skipped,
            cursor_us=self.cursor_us,
            open={
                slot_us: RunSlot(
                    started_us=texts.instant_us(slot.start_time),
                    job_name=slot.job_name,
                    trouble=slot.trouble,
                )
                for slot_us, slot in slots.items()
            },
            first_us=texts.instant_us(self.start_time),
            trouble=trouble,
        )


#: A ScheduleRun without a status.
NOTHING = PublishedRunStatus()


def read(status: Mapping[str, Any]) -> PublishedRunStatus:
    """Parse a published status; an empty one if it is not ours."""
    try:
        return msgspec.convert(status, PublishedRunStatus)
    except msgspec.ValidationError:
        return NOTHING


# -- judging -----------------------------------------------------------------------------------


def has_ended(verdict: Verdict) -> bool:
    """Whether no run of the ScheduleRun will start any more."""
    return any(one.type in _ENDS for one in verdict)


def cut_off(wanted: Wanted, schedule: str, course: Progress, planned: int | None) -> Verdict:
    """Return the verdict when its Schedule was deleted: nothing more starts, or is waited for."""
    planned = course.opened if planned is None else planned
    if course.ended >= planned and not course.failed:
        return _ended(wanted, course, planned)
    said = (
        f"Schedule {schedule} was deleted: of {_runs(planned)} {course.succeeded} succeeded, "
        f"{course.failed} failed{_without_an_end(course)}"
    )
    if course.open:
        said += f", {len(course.open)} had not ended"
    if left := max(0, planned - course.opened):
        said += f", {left} never started"
    return failed(Reason.SCHEDULE_NOT_FOUND, said + _newest_failure(course))


def standing(wanted: Wanted, course: Progress, planned: int) -> Verdict:
    """Return the verdict on a ScheduleRun with a Schedule, from its progress."""
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
    said += _without_an_end(course)
    complete = _condition(ConditionType.COMPLETE, Reason.COMPLETED, said)
    return (*conditions.ready(Reason.COMPLETED, said), complete)


def failed(reason: Reason, said: str) -> Verdict:
    """Return the verdict on a ScheduleRun with a failed run, or one that cannot run at all."""
    return (*conditions.stalled(reason, said), _condition(ConditionType.FAILED, reason, said))


def _condition(kind: ConditionType, reason: Reason, said: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=said)


def _without_an_end(course: Progress) -> str:
    """Return the text that counts slots that neither succeeded nor failed."""
    said = f", {course.replaced} replaced" if course.replaced else ""
    return said + (f", {course.skipped} skipped ({course.skip_reason})" if course.skipped else "")


def _newest_failure(course: Progress) -> str:
    return f"{_NEWEST_FAILURE}{course.trouble}" if course.trouble else ""


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


# -- writing -----------------------------------------------------------------------------------


def rendered(
    verdict: Verdict, course: Progress, *, planned: int | None, schedule_uid: str,
    generation: int, now_us: int, previous: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return the whole status.

    Args:
        planned: the number of slots in all; None if they cannot be counted.
        schedule_uid: the Schedule that it begins or began with; empty = none yet.
        previous: the published status; a condition that stays true keeps its time.
    """
    listed = previous.get("conditions")
    before: Sequence[Mapping[str, Any]] = listed if isinstance(listed, list) else ()
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions.rendered(
            verdict,
            generation=generation,
            now=texts.instant(now_us - now_us % 1_000_000),
            previous=before,
        ),
        "message": verdict[0].message[: conditions.MESSAGE_LIMIT],
    }
    if schedule_uid:
        status["scheduleUid"] = schedule_uid
    if planned is not None:
        status["runs"] = _counts(course, planned)
    if course.cursor_us is not None:
        status["cursor"] = texts.instant(course.cursor_us)
    if course.open and not has_ended(verdict):
        status["active"] = [_slot(slot_us, one) for slot_us, one in course.open.items()]
    if course.first_us:
        status["startTime"] = texts.instant(course.first_us)
    if has_ended(verdict):
        # The end of the last run; now if none ran, or its Schedule was deleted, perhaps long after.
        is_cut_off = verdict[0].reason is Reason.SCHEDULE_NOT_FOUND
        last_us = 0 if is_cut_off else course.last_us
        status["completionTime"] = texts.instant(last_us or now_us - now_us % 1_000_000)
    return status


def _counts(course: Progress, planned: int) -> dict[str, int]:
    counts = {
        "planned": planned,
        "started": course.started,
        "succeeded": course.succeeded,
        "failed": course.failed,
        "skipped": course.skipped,
    }
    return counts | {"replaced": course.replaced} if course.replaced else counts


def _slot(slot_us: int, one: RunSlot) -> dict[str, str]:
    fields = {"scheduledTime": texts.instant(slot_us)}
    if one.started_us:
        fields["startTime"] = texts.instant(one.started_us)
    if one.job_name:
        fields["jobName"] = one.job_name
    if one.trouble:
        fields["trouble"] = run.cut(one.trouble, run.CAUSE_LIMIT)
    return fields
