"""Attempts with an outcome -> what the settlement says of them. Pure.

One attempt and its outcome become finished points, a retry, the chain's next due, a dead letter,
run events: a ``Closing``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions, points
from duepoint.schedules import definition as definitions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.worker import closing as closings
from duepoint.worker import runlimits
from duepoint.worker.plan import Attempt, Closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An attempt with what came of it.

    Attributes:
        kind: the target's type, because a Job counts as started only once it exists.
        had_owner: another worker held this point before, and may have asked the target.
        fraction: uniform in [0, 1), the dice of the backoff.
    """

    attempt: Attempt
    outcome: outcomes.Outcome
    kind: type[actions.Target]
    limits: outcomes.RetryLimits
    started_us: int
    now_us: int
    fraction: float
    had_owner: bool = False


def closing(tried: Tried) -> Closing:
    """How an attempt ends, as the settlement says it."""
    match tried.outcome:
        case outcomes.Delivered() as delivered:
            return _delivered(tried, delivered)
        case outcomes.Rejected() as rejected:
            return _given_up(tried, rejected)
        case outcomes.Retry() as wanted:
            return _tried_again(tried, wanted)
        case outcomes.Skip() as skipped:
            event = _event(tried, RunState.SKIPPED, skipped.reason, skipped.message)
            return _end(tried, events=(event,))


def _delivered(tried: Tried, delivered: outcomes.Delivered) -> Closing:
    running = delivered.running
    event = _event(
        tried,
        RunState.RUNNING if running else RunState.SUCCEEDED,
        Reason.CREATED if running else Reason.SUCCEEDED,
        delivered.message,
        finished_us=0 if running else delivered.accepted_us,
        job_name=delivered.job_name,
        http_status=delivered.http_status,
    )
    if delivered.job_name and (
        delivered.may_come_again
        or tried.had_owner
        or outcomes.may_still_come(tried.attempt.record.unanswered_us, tried.now_us)
    ):  # a request for this Job may be carried out once more
        event = msgspec.structs.replace(event, may_come_again=True)
    return _end(tried, events=(event,))


def _tried_again(tried: Tried, wanted: outcomes.Retry) -> Closing:
    made = tried.attempt.number if wanted.counted else tried.attempt.number - 1
    limits = tried.limits
    if not wanted.counted:  # what never began uses up no attempt, not even the only one
        limits = dataclasses.replace(limits, max_attempts=limits.max_attempts + 1)
    due_us = outcomes.next_try(
        limits,
        attempts_made=max(made, 1),
        now_us=tried.now_us,
        # What waits for its turn has had its backoff, or never needed one.
        fraction=tried.fraction if wanted.counted or wanted.after_us is None else 0.0,
        tried_for_us=_tried_for_us(tried),
        after_us=wanted.after_us,
    )
    if due_us is None:
        return _given_up(tried, wanted)
    if wanted.reason is Reason.RECEIVER_BUSY:
        due_us = _together(due_us, limits.give_up_us)
    retry = _retry(tried, wanted, attempts_made=made, due_us=due_us)
    events = _news_of_retry(tried, wanted, due_us=due_us)
    return _end(tried, occurrences=(retry,), events=events)


def _tried_for_us(tried: Tried) -> int | None:
    """None of a webhook: its ``retry`` says how its waits grow."""
    if tried.kind is actions.WebhookAction:
        return None
    return tried.now_us - (tried.attempt.first_try_us or tried.started_us)


#: What was put off comes back at one of these moments: thousands of slots of a namespace whose
#: receivers hang are then a few claims, and not a claim and a settlement each, for which the slots
#: of others would wait. Most of those are due at whole seconds, and have the beginning of each
#: (``clock.seconds_to_lull``).
#: An attempt that hangs until its time limit ends at such a moment again.
_TOGETHER_US = (350_000, 475_000, 600_000, 725_000)


def _together(due_us: int, give_up_us: int) -> int:
    """The next of those moments, or the time itself where that would be after the end."""
    moment_us = due_us + min((at_us - due_us) % 1_000_000 for at_us in _TOGETHER_US)
    return moment_us if moment_us < give_up_us else due_us


def _news_of_retry(tried: Tried, wanted: outcomes.Retry, *, due_us: int) -> tuple[RunEvent, ...]:
    """A slot that was tried has started; one that was put off before it started is open.

    A Job starts with its Job, so its slot is open for as long as it is tried.
    """
    attempt = tried.attempt
    status = wanted.http_status
    if wanted.started and tried.kind is not actions.JobAction:
        state = RunState.RUNNING
        message = f"{wanted.message}; next try at {run.instant_text(due_us)}"
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


def _given_up(tried: Tried, last: outcomes.Retry | outcomes.Rejected) -> Closing:
    """No further attempt: what never started is a missed slot, the rest a failed run.

    A Job starts with its Job, a delivery with the first request: one that waited for a circuit
    until its time was over has not.
    """
    waited = not last.started and not tried.attempt.first_try_us
    missed = tried.kind is actions.JobAction or waited
    is_late = waited and isinstance(last, outcomes.Retry) and not last.counted
    event = _event(
        tried,
        RunState.MISSED if missed else RunState.FAILED,
        Reason.DEADLINE_EXCEEDED if is_late else last.reason,
        last.message,
        finished_us=0 if missed else tried.now_us,
        http_status=last.http_status,
    )
    # A chain goes on when its slot is given up on: the letter must not take the chain with it.
    member = b"" if tried.attempt.is_chain else tried.attempt.point.member
    letter = messages.DeadLetter(member=member, entry=_letter(tried, last))
    return _end(tried, dead=(letter,), events=(event,))


def _retry(
    tried: Tried, wanted: outcomes.Retry, *, attempts_made: int, due_us: int
) -> messages.Occurrence:
    attempt = tried.attempt
    kind = attempt.point.kind
    # A delivery without its Secret was never begun, so it has not started.
    was_tried = wanted.counted and (wanted.started or tried.kind is actions.JobAction)
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
    origin = _origin(attempt.definition)
    if tried.kind is actions.JobAction:
        origin["target"] = records.JOB_TARGET
    return messages.Occurrence(
        point=point,
        record=record,
        source=attempt.point.member,
        origin=origin,
        open_limit=policy.catch_up_limit if policy.catch_up == "All" else 0,
    )


def _end(
    tried: Tried,
    *,
    events: tuple[RunEvent, ...],
    occurrences: tuple[messages.Occurrence, ...] = (),
    dead: tuple[messages.DeadLetter, ...] = (),
) -> Closing:
    """The attempt's own point ends: a chain moves on, an occurrence goes unless tried again."""
    attempt, point = tried.attempt, tried.attempt.point
    finished: tuple[bytes, ...] = (point.member,)
    chains: tuple[DuePoint, ...] = ()
    ended: tuple[points.ScheduleId, ...] = ()
    is_counted = _is_counted(tried)
    if not attempt.is_chain:
        stays = any(one.point.member == point.member for one in occurrences)
        if stays or any(letter.member == point.member for letter in dead):
            finished = ()
    elif attempt.following is None or (is_counted and _has_last_run(attempt)):
        ended = (point.schedule_id,)
    else:
        following_us = attempt.following.due_us
        finished = ()
        chains = (points.chain(point.schedule_id, point.timing_version, following_us),)
    return Closing(
        finished=finished,
        occurrences=occurrences,
        chains=chains,
        ended=ended,
        counted=(point.member,) if is_counted else (),
        leaving=_leaving(attempt, has_retry=bool(occurrences), is_dead=bool(dead)),
        dead=dead,
        events=events,
    )


def _leaving(
    attempt: Attempt, *, has_retry: bool, is_dead: bool
) -> tuple[tuple[points.ScheduleId, messages.Leaving], ...]:
    """Whether a member may have come to its end with this slot; the queue knows if it has."""
    if attempt.definition.owner is None or has_retry:
        return ()
    if attempt.is_chain and attempt.following is not None:
        return ()
    why = messages.Leaving.DEAD if is_dead else messages.Leaving.ENDED
    return ((attempt.point.schedule_id, why),)


def _is_counted(tried: Tried) -> bool:
    """Whether the slot has started by this attempt and its schedule counts that."""
    attempt = tried.attempt
    return (
        runlimits.is_limited(attempt.definition)
        and attempt.is_regular
        and runlimits.starts(attempt.definition, attempt.first_try_us, tried.outcome)
    )


def _has_last_run(attempt: Attempt) -> bool:
    """Whether a slot that starts takes the last run that ``maxRuns`` allows."""
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
    return closings.attempt_event(
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
        again=_has_started(tried),
    )


def _has_started(tried: Tried) -> bool:
    """Whether an attempt before has started the slot: a Job starts with its Job, at the end."""
    return tried.kind is not actions.JobAction and tried.attempt.first_try_us > 0


def _letter(tried: Tried, last: outcomes.Retry | outcomes.Rejected) -> dict[str, str]:
    attempt = tried.attempt
    return {
        **_origin(attempt.definition),
        "slot_us": str(attempt.slot_us),
        **records.for_letter(attempt.record),
        "trigger": attempt.trigger,
        "attempts": str(attempt.number),
        "reason": str(last.reason),
        "message": last.message,
        "http_status": "" if last.http_status is None else str(last.http_status),
        "given_up_us": str(tried.now_us),
    }


def _origin(known: definitions.Definition) -> dict[str, str]:
    return {**closings.origin(known), "generation": str(known.generation)}
