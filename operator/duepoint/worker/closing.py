"""Outcomes -> what the settlement says of them. Pure.

One attempt and its outcome become finished points, a retry, the chain's next due, a dead letter,
run events: a ``Closing``. What has no outcome of its own has one too: a check, a slot that waits
for other runs, one that was taken out of the queue.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import nextdues, retrylimit
from duepoint.delayqueue.concurrency import activeruns
from duepoint.delayqueue.definitions import records
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions, points
from duepoint.schedules import definition as definitions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.targets import target as targets
from duepoint.worker import runlimits
from duepoint.worker.plan import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How one attempt, or one point without an attempt, ends; or many that went together."""

    finished: tuple[bytes, ...] = ()
    occurrences: tuple[messages.Occurrence, ...] = ()
    chains: tuple[DuePoint, ...] = ()
    rearmed: Sequence[nextdues.Pair] = ()
    ended: tuple[points.ScheduleId, ...] = ()
    counted: tuple[bytes, ...] = ()
    dead: tuple[messages.DeadLetter, ...] = ()
    events: Sequence[RunEvent | run.Together] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A run that counted for its schedule's concurrency policy and has ended."""

    definition: definitions.Definition
    run: activeruns.ActiveRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A first attempt that is under way, begun at this instant of the monotonic clock."""

    attempt: Attempt
    started_us: int
    since: float


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


# -- the decision ----------------------------------------------------------------------------


def closing(tried: Tried) -> Closing:
    """What to tell the queue about an attempt."""
    match tried.outcome:
        case outcomes.Delivered() as delivered:
            return _delivered(tried, delivered)
        case outcomes.Rejected() as rejected:
            return _given_up(tried, rejected)
        case outcomes.Retry() as wanted:
            return _tried_again(tried, wanted)
        case outcomes.Skip() as skipped:
            event = _event(tried, RunState.SKIPPED, skipped.reason, skipped.message)
            return _end(tried, Closing(events=(event,)))


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
    if delivered.job_name and _may_come_again(tried, delivered):
        event = msgspec.structs.replace(event, may_come_again=True)
    return _end(tried, Closing(events=(event,)))


def _may_come_again(tried: Tried, delivered: outcomes.Delivered) -> bool:
    """Whether anybody's request for this Job may be carried out once more."""
    asked_us = tried.attempt.record.unanswered_us
    is_late = outcomes.may_still_come(asked_us, tried.now_us)
    return delivered.may_come_again or tried.had_owner or is_late


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
        after_us=wanted.after_us,
    )
    if due_us is None:
        return _given_up(tried, wanted)
    if wanted.reason is Reason.RECEIVER_BUSY:
        due_us = _together(due_us, limits.give_up_us)
    retry = _retry(tried, wanted, attempts_made=made, due_us=due_us)
    events = _news_of_retry(tried, wanted, due_us=due_us)
    return _end(tried, Closing(occurrences=(retry,), events=events))


#: What was put off comes back at one of these moments: thousands of slots of a namespace whose
#: receivers hang are then a few claims, and not a claim and a settlement each, for which the slots
#: of others would wait. Most of those are due at whole seconds, which lie between two moments.
_TOGETHER_US = 250_000
_TOGETHER_OFFSET_US = _TOGETHER_US // 2


def _together(due_us: int, give_up_us: int) -> int:
    """The next of those moments, or the time itself where that would be after the end."""
    moment_us = due_us + (_TOGETHER_OFFSET_US - due_us) % _TOGETHER_US
    return moment_us if moment_us < give_up_us else due_us


#: A check that found something missing is repeated after this; the first one sooner, because what
#: it was told may have been remembered from right before it was mended.
CHECK_AGAIN_US = 30_000_000
_CHECK_SOON_US = 3_000_000


def checked(attempt: Attempt, found: targets.Checked | None, now_us: int) -> Closing:
    """What to tell of a check: asked again for as long as somebody may mend what it found."""
    known = attempt.definition
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=0,
        trigger=attempt.trigger,
        state=RunState.CHECKED,
        reason="" if found is None else found.reason,
        message="" if found is None else found.message,
        at_us=now_us,
    )
    if found is None or found.final:
        return Closing(finished=(attempt.point.member,), events=(event,))
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
    return Closing(occurrences=(again,), events=(event,))


def _news_of_retry(tried: Tried, wanted: outcomes.Retry, *, due_us: int) -> tuple[RunEvent, ...]:
    """A slot that was tried has started; one that was put off before it started is open.

    A Job starts with its Job, so its slot is open for as long as it is tried.
    """
    attempt = tried.attempt
    status = wanted.http_status
    if wanted.started and tried.kind is not actions.JobAction:
        state = RunState.RUNNING
        told = f"{wanted.message}; next try at {run.instant_text(due_us)}"
        return (_event(tried, state, wanted.reason, told, http_status=status),)
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
    return _end(tried, Closing(dead=(letter,), events=(event,)))


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
    record = dataclasses.replace(
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
        origin["target"] = retrylimit.JOB
    return messages.Occurrence(
        point=point,
        record=record,
        source=attempt.point.member,
        origin=origin,
        open_limit=policy.catch_up_limit if policy.catch_up == "All" else 0,
    )


def _end(tried: Tried, closed: Closing) -> Closing:
    """The attempt's own point ends: a chain moves on, an occurrence goes unless tried again."""
    attempt = tried.attempt
    if _is_counted(tried):
        closed = dataclasses.replace(closed, counted=(attempt.point.member,))
    if not attempt.is_chain:
        stays = any(one.point.member == attempt.point.member for one in closed.occurrences)
        buried = any(letter.member == attempt.point.member for letter in closed.dead)
        finished = () if stays or buried else (attempt.point.member,)
        return dataclasses.replace(closed, finished=finished)
    if attempt.following is None or _is_last(tried):
        return dataclasses.replace(
            closed, finished=(attempt.point.member,), ended=(attempt.point.schedule_id,)
        )
    following = points.chain(
        attempt.point.schedule_id, attempt.point.timing_version, attempt.following.due_us
    )
    return dataclasses.replace(closed, chains=(following,))


def _is_counted(tried: Tried) -> bool:
    """Whether the slot has started by this attempt and its schedule counts that."""
    attempt = tried.attempt
    return (
        runlimits.is_limited(attempt.definition)
        and attempt.is_regular
        and runlimits.starts(attempt.definition, attempt.first_try_us, tried.outcome)
    )


def _is_last(tried: Tried) -> bool:
    """Whether the slot took the last run that ``maxRuns`` allows."""
    return tried.attempt.definition.runs_left == 1 and _is_counted(tried)


def running(one: Open, now_us: int) -> Closing:
    """The attempt goes on; its slot has started, and has not ended."""
    attempt, known = one.attempt, one.attempt.definition
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=RunState.RUNNING,
        reason=Reason.RUNNING,
        message="the request is open",
        at_us=now_us,
        started_us=one.started_us,
        attempts=attempt.number - 1,
        run_uid=attempt.run_uid,
    )
    return Closing(events=(event,))


def withdrawn(attempt: Attempt, now_us: int) -> Closing | None:
    """The occurrence was taken out of the queue before its attempt; its ScheduleRun is told."""
    told = "taken out of the queue before it ran"
    return _note_to_run(attempt, Reason.DELETED, told, attempts=attempt.number, now_us=now_us)


def replacing(
    known: definitions.Definition, runs: Iterable[activeruns.ActiveRun], told: str, *, now_us: int
) -> Closing:
    """The Jobs of these runs are about to be deleted; how each of them ends is seen by its Job."""
    events = tuple(
        RunEvent(
            uid=known.uid,
            namespace=known.namespace,
            name=known.name,
            generation=known.generation,
            slot_us=one.slot_us,
            trigger="Manual" if one.is_wanted else "Schedule",
            state=RunState.REPLACING,
            reason=Reason.REPLACED,
            message=told,
            at_us=now_us,
            job_name=one.job,
        )
        for one in runs
    )
    return Closing(events=events)


def waiting(attempt: Attempt, message: str, *, now_us: int) -> Closing | None:
    """The slot waits for other runs to end; its ScheduleRun is told."""
    reason, made = Reason.CONCURRENCY_QUEUED, attempt.number - 1
    return _note_to_run(attempt, reason, message, attempts=made, now_us=now_us)


def _note_to_run(
    attempt: Attempt, reason: Reason, message: str, *, attempts: int, now_us: int
) -> Closing | None:
    """News of a slot that has not ended; None where no ScheduleRun wants it."""
    if not attempt.run_uid:
        return None
    known = attempt.definition
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=RunState.PENDING,
        reason=reason,
        message=message,
        at_us=now_us,
        attempts=attempts,
        run_uid=attempt.run_uid,
    )
    return Closing(events=(event,))


def unrun(
    attempt: Attempt, state: RunState, reason: Reason, message: str, *, now_us: int
) -> Closing:
    """The slot of an occurrence ends without this attempt."""
    known = attempt.definition
    is_run = state in run.ENDED
    event = RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=state,
        reason=reason,
        message=message,
        at_us=now_us,
        started_us=attempt.first_try_us,
        finished_us=now_us if is_run else 0,
        attempts=attempt.number - 1,
        again=attempt.first_try_us > 0 and is_run,
        settled_us=attempt.slot_us if attempt.is_regular else 0,
        completed=attempt.completes and attempt.is_regular,
        run_uid=attempt.run_uid,
    )
    return Closing(finished=(attempt.point.member,), events=(event,))


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
    known = attempt.definition
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=attempt.slot_us,
        trigger=attempt.trigger,
        state=state,
        reason=reason,
        message=message,
        at_us=tried.now_us,
        started_us=attempt.first_try_us or tried.started_us,
        finished_us=finished_us,
        attempts=attempt.number,
        job_name=job_name,
        http_status=http_status,
        settled_us=attempt.slot_us if attempt.is_regular and settled else 0,
        completed=attempt.is_regular and (attempt.completes or _is_last(tried)),
        run_uid=attempt.run_uid,
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
    return {
        "namespace": known.namespace,
        "name": known.name,
        "uid": known.uid,
        "generation": str(known.generation),
    }
