"""The changes of a ScheduleSet that are Kubernetes Events: problems, not numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from duepoint.controller.schedulesets.followed import FollowedSet
from duepoint.controller.schedulesets.setreports import SetReport
from duepoint.kube import schedules
from duepoint.kube.events import Event, ObjectReference
from duepoint.schedules.conditions import Condition, ConditionType, Reason

_OF_STALLED = frozenset({Reason.UNKNOWN_TIME_ZONE, Reason.INVALID_JOB_TEMPLATE})


def of_report(state: FollowedSet, report: SetReport) -> Iterator[Event]:
    """What was found in a spec, where the status does not say so already."""
    shown = {
        (str(each.get("type")), str(each.get("message")))
        for each in state.published.get("conditions") or ()
    }
    for condition in report.conditions:
        if condition.type is ConditionType.STALLED:
            reason = (
                condition.reason if condition.reason in _OF_STALLED else Reason.INVALID_SCHEDULE
            )
            if (condition.type.value, condition.message) not in shown:
                yield _event(state, reason, condition.message)


def of_loss(state: FollowedSet) -> Event:
    """Redis lost members."""
    before = 0 if state.lost is None else state.lost.members
    note = f"Redis lost members: there were {before} when they were counted last"
    return _event(state, Reason.MEMBERS_LOST, note)


def of_rows(state: FollowedSet, condition: Condition) -> Event:
    """Rows are wrong, or cannot be used."""
    return _event(state, condition.reason, condition.message)


def _event(state: FollowedSet, reason: Reason, note: str) -> Event:
    seen = state.seen
    return Event(
        regarding=ObjectReference(
            namespace=seen.namespace, name=seen.name, uid=seen.uid, kind=schedules.SET_KIND
        ),
        reason=reason,
        action="Reconcile",
        note=note,
        warning=True,
    )
