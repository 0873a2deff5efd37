"""Turns the endings of points into settlements: events, dead letters, retries. Pure.

An attempt and its outcome (``Tried``) become a finished point or a chain that moves on, a retry or
a dead letter, and events. The module also ends checks, slots that wait for other runs, and points
whose definition is gone. ``planning`` ends the slots that get no attempt.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.messages import Settlement
from duepoint.kube import errors as kube_errors
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions, points
from duepoint.schedules import definition as definitions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.targets import outcome as outcomes
from duepoint.targets import target as targets
from duepoint.worker import runlimits
from duepoint.worker.plan import TRIGGER_SCHEDULE, Attempt

#: A check that found something missing is repeated after this; the first one sooner, because its
#: answer may have come from a cache that was filled right before the fix.
CHECK_AGAIN_US = 30_000_000
_CHECK_SOON_US = 3_000_000


def slot_event(
    known: definitions.Definition,
    slot_us: int,
    state: RunState,
    reason: str,
    now_us: int,
    *,
    trigger: str = TRIGGER_SCHEDULE,
    **more: Any,  # noqa: ANN401 - fields of RunEvent
) -> RunEvent:
    """Return an event of a slot: the fields that all events of a Schedule have, and ``more``."""
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=slot_us,
        trigger=trigger,
        state=state,
        reason=reason,
        at_us=now_us,
        owner=known.owner,
        **more,
    )


def origin(known: definitions.Definition) -> dict[str, str]:
    """Return the fields of a dead letter that name its schedule and, for a member, its set."""
    fields = {
        "namespace": known.namespace,
        "name": known.name,
        "uid": known.uid,
        "schedule_id": known.id.hex(),
        "generation": str(known.generation),
    }
    if known.owner is not None:
        fields |= {"set": known.owner.name, "set_id": known.owner.text.decode()}
    return fields


# -- dead letters ----------------------------------------------------------------------------------


def unrecognised(member: bytes, score: float) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=member,
        entry={
            "reason": Reason.INTERNAL_ERROR,
            "message": "the format of this member is unknown",
            "member": member.hex(),
            "score": repr(score),
        },
    )


def undefined(point: DuePoint) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=point.member,
        entry={
            "schedule_id": point.schedule_id.hex(),
            "slot_us": str(point.slot_us),
            "kind": point.kind.name,
            "reason": Reason.INTERNAL_ERROR,
            "message": "the definition of its schedule cannot be read by this version",
        },
    )


def dead(
    point: DuePoint,
    known: definitions.Definition,
    record: messages.OccurrenceRecord,
    reason: Reason,
    message: str,
    **more: str,
) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=point.member,
        entry={
            **origin(known),
            "slot_us": str(point.slot_us),
            "kind": point.kind.name,
            **records.for_letter(record),
            "reason": reason,
            "message": message,
            **more,
        },
    )


def withdrawn(point: DuePoint, record: messages.OccurrenceRecord, now_us: int) -> RunEvent | None:
    """Return the event of a claimed slot whose schedule is gone; None if no ScheduleRun awaits it.

    Without it the ScheduleRun, whose slot a worker had claimed, would wait for the longest attempt.
    """
    if not record.run_uid:
        return None
    return RunEvent(
        uid="",  # was in the definition, which is gone
        namespace="",
        name="",
        generation=0,
        slot_us=point.slot_us,
        trigger=record.trigger,
        state=RunState.PENDING,
        reason=Reason.DELETED,
        at_us=now_us,
        message="its Schedule was deleted before it ran",
        attempts=record.attempt + 1,
        run_uid=record.run_uid,
    )


# -- attempts without an outcome -----------------------------------------------------------------


def attempt_event(
    attempt: Attempt,
    state: RunState,
    reason: str,
    message: str,
    now_us: int,
    **more: Any,  # noqa: ANN401 - fields of RunEvent
) -> RunEvent:
    """Return an event of the slot of an attempt."""
    return slot_event(
        attempt.definition,
        attempt.slot_us,
        state,
        reason,
        now_us,
        trigger=attempt.trigger,
        message=message,
        run_uid=attempt.run_uid,
        **more,
    )


def checked(attempt: Attempt, found: targets.Trouble | None, now_us: int) -> Settlement:
    """Return the settlement of a check; it is repeated while its trouble may be fixed."""
    event = slot_event(
        attempt.definition,
        0,
        RunState.CHECKED,
        "" if found is None else found.reason,
        now_us,
        trigger=attempt.trigger,
        message="" if found is None else found.message,
    )
    if found is None or found.final:
        return Settlement(finished=[attempt.point.member], events=[event])
    wait_us = _CHECK_SOON_US if attempt.number == 1 else CHECK_AGAIN_US
    again = messages.Occurrence(
        point=dataclasses.replace(attempt.point, due_us=now_us + wait_us),
        record=messages.OccurrenceRecord(
            attempt=attempt.number,
            trigger=attempt.trigger,
            last_error=found.reason,
            last_cause=run.cut(found.message, run.CAUSE_LIMIT),
        ),
        source=attempt.point.member,
    )
    return Settlement(occurrences=[again], events=[event])


def running(attempt: Attempt, started_us: int, now_us: int) -> Settlement:
    """Return the event that an attempt is in flight: its slot has started and has not ended."""
    event = attempt_event(
        attempt,
        RunState.RUNNING,
        Reason.RUNNING,
        "the request is open",
        now_us,
        started_us=started_us,
        attempts=attempt.number - 1,
    )
    return Settlement(events=[event])


def still_open(
    attempt: Attempt, reason: Reason, message: str, *, attempts: int, now_us: int
) -> Settlement:
    """Return the event of a slot that has not ended; empty if no ScheduleRun awaits it."""
    if not attempt.run_uid:
        return Settlement()
    event = attempt_event(attempt, RunState.PENDING, reason, message, now_us, attempts=attempts)
    return Settlement(events=[event])


# -- attempts with an outcome ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An attempt with its outcome.

    Attributes:
        had_owner: another worker held this point before, and may have sent its request.
        fraction: uniform in [0, 1), the jitter of the backoff.
    """

    attempt: Attempt
    firing: targets.Firing
    outcome: outcomes.Outcome
    started_us: int
    now_us: int
    fraction: float
    had_owner: bool = False

    @property
    def is_job(self) -> bool:
        """Whether it makes a Job, which counts as started only once it exists."""
        return isinstance(self.firing.action.target, actions.JobAction)


def settlement(tried: Tried) -> Settlement:
    """Return the settlement of an attempt."""
    match tried.outcome:
        case outcomes.Delivered() as delivered:
            return _delivered(tried, delivered)
        case outcomes.Rejected() as rejected:
            return _given_up(tried, rejected)
        case outcomes.Retry() as wanted:
            return _tried_again(tried, wanted)
        case outcomes.Skip() as skipped:
            event = _event(tried, RunState.SKIPPED, skipped.reason, skipped.message)
            return _end(tried, event)


def _delivered(tried: Tried, delivered: outcomes.Delivered) -> Settlement:
    running = delivered.running
    event = _event(
        tried,
        RunState.RUNNING if running else RunState.SUCCEEDED,
        Reason.RUNNING if running else Reason.SUCCEEDED,
        delivered.message,
        finished_us=0 if running else delivered.accepted_us,
        job_name=delivered.job_name,
        http_status=delivered.http_status,
    )
    if delivered.job_name and (
        delivered.may_come_again
        or tried.had_owner
        or tried.now_us < tried.attempt.record.unanswered_us + kube_errors.LATE_US
    ):  # the API server may carry out a request for this Job once more
        event = msgspec.structs.replace(event, may_come_again=True)
    return _end(tried, event)


def _tried_again(tried: Tried, wanted: outcomes.Retry) -> Settlement:
    made = tried.attempt.number if wanted.counted else tried.attempt.number - 1
    due_us = targets.next_try(
        tried.firing,
        tried.attempt.deadline_us,
        attempts_made=made,  # a try that never began does not count, even if only one is allowed
        now_us=tried.now_us,
        # A retry that waits for its turn has had its backoff, or never needed one: no jitter.
        fraction=tried.fraction if wanted.counted or wanted.after_us is None else 0.0,
        tried_for_us=tried.now_us - (tried.attempt.first_try_us or tried.started_us),
        after_us=wanted.after_us,
    )
    if due_us is None:
        return _given_up(tried, wanted)
    retry = _retry(tried, wanted, attempts_made=made, due_us=due_us)
    events = _news_of_retry(tried, wanted, due_us=due_us)
    return _end(tried, *events, retry=retry)


def _news_of_retry(tried: Tried, wanted: outcomes.Retry, *, due_us: int) -> tuple[RunEvent, ...]:
    """Return the events of a retry: a slot that was tried is running, one put off is pending.

    The slot of a Job starts when the Job exists, so until then it stays pending.
    """
    attempt = tried.attempt
    status = wanted.http_status
    if wanted.started and not tried.is_job:
        state = RunState.RUNNING
        message = f"{wanted.message}; next try at {targets.instant_text(due_us)}"
        return (_event(tried, state, wanted.reason, message, http_status=status),)
    has_started = _has_started(tried)
    if has_started and wanted.reason is Reason.CIRCUIT_OPEN:
        return (_event(tried, RunState.RUNNING, wanted.reason, wanted.message),)
    if has_started or not (attempt.is_regular or attempt.run_uid):
        return ()
    put_off = _event(tried, RunState.PENDING, wanted.reason, wanted.message, settled=False)
    made = attempt.number if wanted.counted else attempt.number - 1
    return (
        msgspec.structs.replace(put_off, due_us=attempt.due_us, completed=False, attempts=made),
    )


def _given_up(tried: Tried, last: outcomes.Retry | outcomes.Rejected) -> Settlement:
    """Give the slot up: it is missed if it never started, else its run has failed.

    The slot of a Job starts when the Job exists, a delivery with its first request. A delivery that
    waited for a circuit until its time was over has not started.
    """
    waited = not last.started and not tried.attempt.first_try_us
    missed = tried.is_job or waited
    is_late = waited and isinstance(last, outcomes.Retry) and not last.counted
    event = _event(
        tried,
        RunState.MISSED if missed else RunState.FAILED,
        Reason.DEADLINE_EXCEEDED if is_late else last.reason,
        last.message,
        finished_us=0 if missed else tried.now_us,
        http_status=last.http_status,
    )
    attempt = tried.attempt
    letter = dead(
        dataclasses.replace(attempt.point, slot_us=attempt.slot_us),
        attempt.definition,
        attempt.record,
        last.reason,
        last.message,
        trigger=attempt.trigger,
        attempts=str(attempt.number),
        http_status="" if last.http_status is None else str(last.http_status),
        given_up_us=str(tried.now_us),
    )
    if attempt.is_chain:  # it goes on when a slot is given up: the letter must not remove it
        letter = dataclasses.replace(letter, member=b"")
    return _end(tried, event, letter=letter)


def _retry(
    tried: Tried, wanted: outcomes.Retry, *, attempts_made: int, due_us: int
) -> messages.Occurrence:
    attempt = tried.attempt
    kind = attempt.point.kind
    # A delivery whose Secret was missing sent no request, so it has not started.
    was_tried = wanted.counted and (wanted.started or tried.is_job)
    again = kind if kind in points.RUN_KINDS else PointKind.RETRY
    point = DuePoint(
        schedule_id=attempt.point.schedule_id,
        timing_version=attempt.point.timing_version,
        kind=again,
        due_us=due_us,
        slot_us=attempt.slot_us,
        run_tag=attempt.point.run_tag,
    )
    record = msgspec.structs.replace(
        attempt.record,
        attempt=attempts_made,
        first_try_us=attempt.first_try_us or (tried.started_us if was_tried else 0),
        trigger=attempt.trigger,
        last_error=wanted.reason,
        last_cause=run.cut(wanted.message, run.CAUSE_LIMIT),
        unanswered_us=tried.now_us if wanted.unanswered else attempt.record.unanswered_us,
    )
    policy = attempt.definition.rule.policy
    fields = origin(attempt.definition)
    if tried.is_job:
        fields["target"] = records.JOB_TARGET
    return messages.Occurrence(
        point=point,
        record=record,
        source=attempt.point.member,
        origin=fields,
        open_limit=policy.catch_up_limit if policy.catch_up_policy == "All" else 0,
    )


def _end(
    tried: Tried,
    *events: RunEvent,
    retry: messages.Occurrence | None = None,
    letter: messages.DeadLetter | None = None,
) -> Settlement:
    """End the attempt's own point: a chain moves on, an occurrence goes unless it is retried."""
    attempt, member = tried.attempt, tried.attempt.point.member
    made = Settlement(events=list(events))
    if retry is not None:
        made.occurrences.append(retry)
    if letter is not None:
        made.dead.append(letter)
    is_counted = _is_counted(tried)
    if is_counted:
        made.counted.append(member)
    if attempt.is_chain:
        has_run_out = is_counted and _has_last_run(attempt)
        made.move(member, None if has_run_out else attempt.following)
    elif letter is None and (retry is None or retry.point.member != member):
        made.finished.append(member)
    if _may_leave(attempt) and retry is None:
        why = messages.Leaving.ENDED if letter is None else messages.Leaving.DEAD
        made.leaving.append((attempt.point.schedule_id, why))
    return made


def _may_leave(attempt: Attempt) -> bool:
    """Whether this slot may be the last of a member of a set; the queue decides whether it is."""
    if attempt.definition.owner is None:
        return False
    return not attempt.is_chain or attempt.following is None


def _is_counted(tried: Tried) -> bool:
    """Whether this attempt has started the slot and its schedule counts started runs."""
    attempt = tried.attempt
    return (
        runlimits.is_limited(attempt.definition)
        and attempt.is_regular
        and runlimits.starts(attempt.definition, attempt.first_try_us, tried.outcome)
    )


def _has_last_run(attempt: Attempt) -> bool:
    """Whether the slot, if it starts, takes the last run that ``maxRuns`` allows."""
    return attempt.definition.runs_left == 1


def _event(
    tried: Tried,
    state: RunState,
    reason: Reason,
    message: str,
    *,
    finished_us: int = 0,
    job_name: str = "",
    http_status: int | None = None,
    settled: bool = True,
) -> RunEvent:
    attempt = tried.attempt
    is_last = _has_last_run(attempt) and _is_counted(tried)
    return attempt_event(
        attempt,
        state,
        reason,
        message,
        tried.now_us,
        started_us=attempt.first_try_us or tried.started_us,
        finished_us=finished_us,
        attempts=attempt.number,
        job_name=job_name,
        http_status=http_status,
        settled_us=attempt.slot_us if attempt.is_regular and settled else 0,
        completed=attempt.is_regular and (attempt.completes or is_last),
    )


def _has_started(tried: Tried) -> bool:
    """Whether an earlier attempt has started the slot; one for a Job cannot have."""
    return not tried.is_job and tried.attempt.first_try_us > 0
