"""The changes of a Schedule that are Kubernetes Events: problems and recoveries, not every run.

Compares a Schedule before and after something became known, so an event that arrives twice is
reported once. The recorder groups them by object and reason; exact numbers stand in the status.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from duepoint.controller.status.texts import instant
from duepoint.controller.statusconditions import Report
from duepoint.kube import jobbuilder
from duepoint.kube.events import Event, ObjectReference
from duepoint.runs.receiver import ReceiverState
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.summary import Summary
from duepoint.schedules.conditions import ConditionType, Reason

RUN_FAILED = "RunFailed"
RUN_RECOVERED = "RunRecovered"
RUN_REPLACED = "RunReplaced"
RUN_MISSED = "RunMissed"
RUN_SKIPPED = "RunSkipped"
JOB_WITHOUT_SLOT = "JobWithoutSlot"
JOB_MADE_AGAIN = "JobMadeAgain"

#: Reasons that are Events of their own; another slot that was missed is a RunMissed, another spec
#: that cannot be accepted is an InvalidSchedule.
_OF_MISSED = frozenset({Reason.QUOTA_EXCEEDED, Reason.NAME_CONFLICT, Reason.INVALID_JOB_TEMPLATE})
#: A worker may not read a Secret, or does not find it: a user has to act.
_OF_SECRETS = frozenset({Reason.MISSING_SECRET, Reason.SECRET_FORBIDDEN})
_OF_STALLED = frozenset({Reason.UNKNOWN_TIME_ZONE, Reason.INVALID_JOB_TEMPLATE})
#: A slot that is skipped is what the spec asks for, except where it was meant to wait for its turn.
_UNWANTED_SKIPS = frozenset({Reason.QUEUE_FULL})


def of_event(
    about: ObjectReference, event: RunEvent, before: Summary, after: Summary
) -> Iterator[Event]:
    """What a run event has changed."""
    slot = instant(event.slot_us)
    if event.state is RunState.PENDING and event.reason == Reason.QUOTA_EXCEEDED:
        yield _warning(about, "Run", event.reason, f"the slot of {slot} waits: {event.message}")
    if event.reason in _OF_SECRETS and _newest_reason(before) != event.reason:
        yield _warning(about, "Run", event.reason, f"the slot of {slot} waits: {event.message}")
    if after.counts.failed > before.counts.failed:
        yield _of_run(about, event, RUN_FAILED, f"the run of {slot} failed: {_why(event)}")
    if after.counts.replaced > before.counts.replaced:
        note = f"the run of {slot} was replaced: {event.message}"
        yield _of_run(about, event, RUN_REPLACED, note)
    if _has_recovered(before, after):
        yield _of_run(about, event, RUN_RECOVERED, f"the run of {slot} succeeded after a failure")
    if missed := after.counts.missed - before.counts.missed:
        reason = event.reason if event.reason in _OF_MISSED else RUN_MISSED
        yield _warning(about, "Run", reason, f"{_slots(missed, slot)} missed: {_why(event)}")
    if skipped := after.counts.skipped - before.counts.skipped:
        yield _of_skip(about, event, f"{_slots(skipped, slot)} skipped: {_why(event)}")
    if after.completed and not before.completed:
        yield _change(about, Reason.COMPLETED, "no slot is left")
    yield from _of_receiver(about, before.receiver, after.receiver)


def of_check(about: ObjectReference, check: RunEvent, before: RunEvent | None) -> Iterator[Event]:
    """What a look at the Secrets of a generation has found, where it was not found before."""
    if check.reason not in _OF_SECRETS:
        return
    if before is None or _found(before) != _found(check):
        yield _warning(about, "Reconcile", check.reason, check.message)


def _found(check: RunEvent) -> tuple[int, str, str]:
    return check.generation, check.reason, check.message


def has_any(report: Report) -> bool:
    """Whether ``of_report`` has something to say."""
    is_complete = report.definition is not None and report.definition.is_complete
    return report.is_settled and bool(
        report.missed
        or report.skipped
        or is_complete
        or any(one.type is ConditionType.STALLED for one in report.conditions)
    )


def of_report(about: ObjectReference, report: Report) -> Iterator[Event]:
    """What the reconciler found in a spec, where that was not published before."""
    if not has_any(report):
        return
    for condition in report.conditions:
        if condition.type is ConditionType.STALLED:
            reason = (
                condition.reason if condition.reason in _OF_STALLED else Reason.INVALID_SCHEDULE
            )
            yield _warning(about, "Reconcile", reason, condition.message)
    if report.missed:
        note = f"slots that it names and that lay in the past: {report.missed}"
        yield _warning(about, "Reconcile", RUN_MISSED, note)
    if report.skipped:
        yield _change(
            about, RUN_SKIPPED, f"slots that passed while it was suspended: {report.skipped}"
        )
    if report.definition is not None and report.definition.is_complete:
        yield _change(about, Reason.COMPLETED, "no slot is left")


def of_job_without_slot(about: ObjectReference, job_name: str, job_uid: str) -> Event:
    """A Job that says that it is a run of the Schedule, and does not say of which slot."""
    return Event(
        regarding=about,
        reason=JOB_WITHOUT_SLOT,
        action="Watch",
        note=(
            f"Job {job_name} names this Schedule as its controller and is no run of it: it lacks "
            f"the annotation {jobbuilder.SCHEDULED_TIME}; it is neither counted nor deleted. To "
            "run a Schedule by hand, create a ScheduleRun"
        ),
        warning=True,
        related=_job(about, job_name, job_uid),
    )


def of_refused_pods(about: ObjectReference, job: ObjectReference, message: str) -> Event:
    """A Job gets no Pods."""
    return Event(
        regarding=about,
        reason=Reason.PODS_REFUSED,
        action="Run",
        note=message,
        warning=True,
        related=job,
    )


def of_job_made_again(about: ObjectReference, job: ObjectReference) -> Event:
    """A slot that had ended runs once more."""
    return Event(
        regarding=about,
        reason=JOB_MADE_AGAIN,
        action="Run",
        note=f"Job {job.name} is there again after it was deleted: its slot, which had ended, runs"
        " once more; a request to make it came late, or another client made it",
        warning=True,
        related=job,
    )


def _of_receiver(
    about: ObjectReference, before: ReceiverState, after: ReceiverState
) -> Iterator[Event]:
    """A receiver that is gone, or whose circuit is open, once for each generation."""
    for reason, was, note in (
        (Reason.ENDPOINT_GONE, before.gone, after.gone),
        (Reason.CIRCUIT_OPEN, before.waits, after.waits),
    ):
        if note is not None and (was is None or was.generation < note.generation):
            yield _warning(about, "Run", reason, note.message)


def _newest_reason(runs: Summary) -> str:
    return "" if runs.last_run is None else runs.last_run.reason


def _has_recovered(before: Summary, after: Summary) -> bool:
    if before.last_result is None or after.last_result is None:
        return False
    return after.last_result.succeeded and not before.last_result.succeeded


def _why(event: RunEvent) -> str:
    return f"{event.reason}: {event.message}" if event.message else event.reason


def _slots(count: int, newest: str) -> str:
    return f"the slot of {newest} was" if count == 1 else f"{count} slots up to {newest} were"


def _of_run(about: ObjectReference, event: RunEvent, reason: str, note: str) -> Event:
    related = None
    if event.job_name:
        related = _job(about, event.job_name, event.job_uid)
    return Event(
        regarding=about,
        reason=reason,
        action="Run",
        note=note,
        warning=reason == RUN_FAILED,
        related=related,
    )


def _of_skip(about: ObjectReference, event: RunEvent, note: str) -> Event:
    unwanted = event.reason in _UNWANTED_SKIPS
    return Event(regarding=about, reason=RUN_SKIPPED, action="Run", note=note, warning=unwanted)


def _job(about: ObjectReference, name: str, uid: str) -> ObjectReference:
    return ObjectReference(
        namespace=about.namespace, name=name, uid=uid, kind="Job", api_version="batch/v1"
    )


def _warning(about: ObjectReference, action: str, reason: str, note: str) -> Event:
    return Event(regarding=about, reason=reason, action=action, note=note, warning=True)


def _change(about: ObjectReference, reason: str, note: str) -> Event:
    return Event(regarding=about, reason=reason, action="Reconcile", note=note)
