"""Kubernetes Events about a Schedule: its problems and recoveries, but not every run.

Compares a Schedule before and after a change, so a run event that arrives twice is reported once.
The recorder groups Events by object and reason; the status has the exact numbers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from duepoint.controller.status.published import instant
from duepoint.controller.statusconditions import Report
from duepoint.kube.events import Event, ObjectReference
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.summary import Summary
from duepoint.schedules.conditions import ConditionType, Reason

RUN_FAILED = "RunFailed"
RUN_FAILING = "RunFailing"
RUN_RECOVERED = "RunRecovered"
RUN_REPLACED = "RunReplaced"
RUN_MISSED = "RunMissed"
RUN_SKIPPED = "RunSkipped"
JOB_MADE_AGAIN = "JobMadeAgain"

#: Reasons of missed slots that are Event reasons of their own; all others are RunMissed.
_OF_MISSED = frozenset({Reason.FORBIDDEN, Reason.NAME_CONFLICT, Reason.INVALID_JOB_TEMPLATE})


def of_event(
    about: ObjectReference, event: RunEvent, before: Summary, after: Summary
) -> Iterator[Event]:
    """Yield the Events for what a run event has changed."""
    slot, why = instant(event.slot_us), event.why
    related = job(about.namespace, event.job_name, event.job_uid) if event.job_name else None

    def changed(
        reason: str, note: str, *, warning: bool = True, job: ObjectReference | None = None
    ) -> Event:
        return new_event(about, "Run", reason, note, warning=warning, related=job)

    if event.state is RunState.PENDING and event.reason == Reason.FORBIDDEN:
        yield changed(event.reason, f"the slot of {slot} waits: {event.message}")
    newest_reason = "" if before.last_run is None else before.last_run.reason
    if event.reason == Reason.SECRET_UNAVAILABLE and newest_reason != event.reason:
        yield changed(event.reason, f"the slot of {slot} waits: {event.message}")
    if after.counts.failed > before.counts.failed:
        yield changed(RUN_FAILED, f"the run of {slot} failed: {why}", job=related)
    if after.counts.replaced > before.counts.replaced:
        note = f"the run of {slot} was replaced: {event.message}"
        yield changed(RUN_REPLACED, note, warning=False, job=related)
    if after.retried is not None and after.failure is after.retried and before.failure is None:
        yield changed(RUN_FAILING, f"the run of {slot} fails again and again: {why}")
    if _has_recovered(before, after):
        note = f"the run of {slot} succeeded after a failure"
        yield changed(RUN_RECOVERED, note, warning=False, job=related)
    if missed := after.counts.missed - before.counts.missed:
        reason = event.reason if event.reason in _OF_MISSED else RUN_MISSED
        yield changed(reason, f"{_slots(missed, slot)} missed: {why}")
    if skipped := after.counts.skipped - before.counts.skipped:
        # The spec asks for skipped slots, unless one was meant to wait for its turn.
        is_unwanted = event.reason == Reason.QUEUE_FULL
        yield changed(RUN_SKIPPED, f"{_slots(skipped, slot)} skipped: {why}", warning=is_unwanted)
    if after.completed and not before.completed:
        yield new_event(about, "Reconcile", Reason.COMPLETED, "no slot is left", warning=False)
    was, gone = before.gone, after.gone
    is_new = gone is not None and (was is None or was.generation < gone.generation)
    if is_new or (event.is_open and event.reason == Reason.CIRCUIT_OPEN):
        yield changed(event.reason, event.message)


def of_report(about: ObjectReference, report: Report) -> Iterator[Event]:
    """Yield the Events for a report of the reconciler that was not published before."""
    if not report.is_settled:
        return
    for condition in report.conditions:
        if condition.type is ConditionType.STALLED:
            yield new_event(about, "Reconcile", condition.reason, condition.message)
    if (made := report.made) is None:
        return
    if made.missed:
        note = f"slots that it names and that lay in the past: {made.missed}"
        yield new_event(about, "Reconcile", RUN_MISSED, note)
    if made.skipped:
        note = f"slots that passed while it was suspended: {made.skipped}"
        yield new_event(about, "Reconcile", RUN_SKIPPED, note, warning=False)
    if made.definition.is_complete and not made.definition.rule.timing.is_by_hand:
        yield new_event(about, "Reconcile", Reason.COMPLETED, "no slot is left", warning=False)


def of_job_made_again(about: ObjectReference, job_name: str, job_uid: str) -> Event:
    """Return the Event for a slot that had ended and runs once more."""
    note = (
        f"Job {job_name} is there again after it was deleted: its slot, which had ended, runs"
        " once more; a request to make it came late, or another client made it"
    )
    return new_event(
        about, "Run", JOB_MADE_AGAIN, note, related=job(about.namespace, job_name, job_uid)
    )


def job(namespace: str, name: str, uid: str) -> ObjectReference:
    """Return a reference to a Job, as Events need it."""
    return ObjectReference(
        namespace=namespace, name=name, uid=uid, kind="Job", api_version="batch/v1"
    )


def _has_recovered(before: Summary, after: Summary) -> bool:
    has_succeeded = after.counts.succeeded > before.counts.succeeded
    return has_succeeded and before.failure is not None and after.failure is None


def _slots(count: int, newest: str) -> str:
    return f"the slot of {newest} was" if count == 1 else f"{count} slots up to {newest} were"


def new_event(
    about: ObjectReference,
    action: str,
    reason: str,
    note: str,
    *,
    warning: bool = True,
    related: ObjectReference | None = None,
) -> Event:
    """Return an Event; a warning if users should take a look."""
    return Event(
        regarding=about, action=action, reason=reason, note=note, warning=warning, related=related
    )
