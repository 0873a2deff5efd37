"""The rendering of a Schedule's status from its state; no other module sets its fields.

``status_at(state, now_us)`` returns the whole status as it should be at an instant. A condition or
field that this process has not determined yet is copied from the published status, so a takeover
writes no status that is already right. Ready's message names the worst current problem, because
that line is what users see in a list. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from duepoint.controller import plan, statusconditions
from duepoint.controller.status import published, texts
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.status.texts import instant
from duepoint.controller.statusconditions import known_reason
from duepoint.kube import jobs
from duepoint.runs import summary as summaries
from duepoint.runs import watermark
from duepoint.runs.history import PastSlot
from duepoint.runs.receiver import ReceiverState
from duepoint.runs.watermark import OpenSlots
from duepoint.schedules import conditions, diagnosis
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.definition import State

#: How many upcoming slots a status lists.
UPCOMING = 5
_NEXT = ("nextScheduleTime", "upcomingTimes")


def status_at(state: ScheduleState, now_us: int) -> dict[str, Any]:
    """Return the whole status as it should be at an instant."""
    last = state.last()
    runs = state.runs()
    status: dict[str, Any] = {
        "observedGeneration": state.observed,
        "conditions": _conditions(state, runs, last, now_us),
        **_runs(runs, state.open),
        **texts.recent_runs(runs.history, state.open),
        **_upcoming(state, runs, last, now_us),
        **_active(state, runs, last),
    }
    target = state.target if state.target is not None else last.get("target")
    if target:
        status["target"] = target
    if timing_hash := _timing_hash(state, last):
        status["timingHash"] = timing_hash
    if state.managed_by:
        status["managedBy"] = state.managed_by
    return status


# -- runs and slots ----------------------------------------------------------------------------


def _runs(runs: summaries.Summary, open_slots: OpenSlots) -> dict[str, Any]:
    moments = {
        "settledThrough": runs.settled_us,
        "lastScheduleTime": runs.last_slot_us,
        "lastSuccessfulTime": runs.last_success_us,
        "lastFailureTime": runs.last_failure_us,
    }
    fields: dict[str, Any] = {name: instant(at_us) for name, at_us in moments.items() if at_us}
    if (listed := texts.open_slots(watermark.settled(open_slots, runs.settled_us))) is not None:
        fields["openSlots"] = listed
    if runs.last_run is not None:
        fields["lastRun"] = texts.last_run(runs.last_run)
    counts = runs.counts
    fields["runs"] = {
        "started": counts.started,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "missed": counts.missed,
        "skipped": counts.skipped,
    }
    if counts.replaced:
        fields["runs"]["replaced"] = counts.replaced
    if counts.manual:
        fields["runs"]["manual"] = counts.manual
    return fields


def _upcoming(
    state: ScheduleState, runs: summaries.Summary, last: dict[str, Any], now_us: int
) -> dict[str, Any]:
    known = state.definition
    if state.holds_nothing or runs.completed:
        return {}
    if known is None:
        return {name: last[name] for name in _NEXT if name in last}
    if known.state is not State.ARMED:
        return {}
    most = known.rule.timing.max_runs
    count = UPCOMING if most is None else max(0, min(UPCOMING, most - runs.counts.regular))
    slots_us = plan.slots_of(known).upcoming(max(now_us, known.not_before_us), count)
    upcoming = [instant(slot_us) for slot_us in slots_us]
    return {"nextScheduleTime": upcoming[0], "upcomingTimes": upcoming} if upcoming else {}


def _active(state: ScheduleState, runs: summaries.Summary, last: dict[str, Any]) -> dict[str, Any]:
    references = state.active
    if references is None:
        listed = last.get("active")
        references = tuple(listed) if isinstance(listed, list) else ()
    owner = jobs.JobOwner(state.namespace, state.name, state.uid)
    return texts.active(runs.running, owner, references)


def _timing_hash(state: ScheduleState, last: dict[str, Any]) -> str:
    """Return the hash of the watermark's timing, or of one waiting to be armed; "" if refused."""
    if state.definition is not None:
        return rules.timing_hash(state.definition.rule)
    if state.waiting_timing:
        return state.waiting_timing
    return "" if state.holds_nothing else str(last.get("timingHash") or "")


# -- conditions --------------------------------------------------------------------------------


def _conditions(
    state: ScheduleState, runs: summaries.Summary, last: dict[str, Any], now_us: int
) -> list[dict[str, Any]]:
    previous = published.conditions_of(last)
    derived = list(_derived(state, runs, previous, now_us))
    if (failing := _failing(derived, runs)) is not None and not _rests(state, now_us):
        derived.append(failing)
    reported = [_ready(one, state, runs, derived, now_us) for one in state.reported_conditions()]
    return conditions.rendered(
        (*reported, *derived),
        generation=state.generation,
        now=instant(now_us - now_us % 1_000_000),
        previous=previous,
    )


def _derived(
    state: ScheduleState, runs: summaries.Summary, previous: list[dict[str, Any]], now_us: int
) -> Iterable[Condition]:
    """Yield the conditions that follow from runs, slots and Jobs."""
    if (result := runs.last_result) is not None:
        yield conditions.last_run(
            succeeded=result.succeeded,
            reason=known_reason(
                result.reason, Reason.SUCCEEDED if result.succeeded else Reason.REJECTED
            ),
            message=result.message,
        )
    if (slot := watermark.overdue(state.open, now_us)) is not None:
        message = f"the slot of {instant(slot.slot_us)} has not started: {slot.message}"
        yield _true(ConditionType.OVERDUE, known_reason(slot.reason, Reason.REJECTED), message)
    if runs.missed is not None and runs.missed.reason == Reason.NAME_CONFLICT:
        yield _true(ConditionType.NAME_CONFLICT, Reason.NAME_CONFLICT, runs.missed.message)
    elif runs.missed is not None:
        reason = known_reason(runs.missed.reason, Reason.REJECTED)
        yield _true(ConditionType.MISSED, reason, texts.missed(runs.missed))
    if message := _refused_pods(state, previous):
        yield _true(ConditionType.PODS_REFUSED, Reason.PODS_REFUSED, message)
    yield from _of_receiver(runs.receiver, state.generation)


def _refused_pods(state: ScheduleState, previous: list[dict[str, Any]]) -> str:
    """Return why a Job has no Pods; until Jobs are observed, this is the published message."""
    if state.active is not None or state.refused_pods:
        return state.refused_pods
    for condition in previous:
        if condition.get("type") == ConditionType.PODS_REFUSED:
            return str(condition.get("message") or "")
    return ""


def _of_receiver(receiver: ReceiverState, generation: int) -> Iterable[Condition]:
    """Yield the conditions of the receiver; a note about an older generation does not count."""
    for type_, reason, note in (
        (ConditionType.ENDPOINT_GONE, Reason.ENDPOINT_GONE, receiver.gone),
        (ConditionType.CIRCUIT_OPEN, Reason.CIRCUIT_OPEN, receiver.waits),
    ):
        if note is not None and note.generation >= generation:
            yield _true(type_, reason, note.message)


def _true(type_: ConditionType, reason: Reason, message: str) -> Condition:
    return Condition(type=type_, status="True", reason=reason, message=message)


def _failing(derived: Iterable[Condition], runs: summaries.Summary) -> Condition | None:
    """Return the Failing condition with the worst known reason, if runs do not succeed."""
    if found := diagnosis.troubles(derived):
        return replace(found[0], type=ConditionType.FAILING)
    if (failure := runs.failure) is None:
        return None
    reason = known_reason(failure.reason, Reason.REJECTED)
    return _true(ConditionType.FAILING, reason, failure.message)


def _rests(state: ScheduleState, now_us: int) -> bool:
    """Whether no runs are expected: the Schedule is refused or suspended."""
    if state.definition is not None and plan.has_resumed(state.definition, now_us):
        return False
    return any(
        condition.reason is Reason.SUSPENDED or condition.type is ConditionType.STALLED
        for condition in state.reported_conditions()
    )


# -- the message of Ready ----------------------------------------------------------------------


def _ready(
    condition: Condition,
    state: ScheduleState,
    runs: summaries.Summary,
    derived: Iterable[Condition],
    now_us: int,
) -> Condition:
    """Set the message of Ready; leave other conditions, or a Ready with its own reason, as is."""
    known = state.definition
    if condition.type is not ConditionType.READY:
        return condition
    is_suspended = condition.reason is Reason.SUSPENDED
    if is_suspended and known is not None and plan.has_resumed(known, now_us):
        (condition, *_) = statusconditions.armed()
    if condition.reason is Reason.ARMED and runs.completed:
        condition = replace(condition, reason=statusconditions.reason_without_slots(known))
    is_over = condition.reason in conditions.WITHOUT_SLOTS
    if condition.status != "True" or not (is_over or condition.reason is Reason.ARMED):
        return condition
    standing = statusconditions.standing(condition.reason, known, runs.counts.regular)
    problem = _worst(derived) or _newest_run(runs)
    if is_over:
        problem = f"{standing}; {problem}" if problem else ""
    return replace(condition, message=problem or standing)


def _worst(derived: Iterable[Condition]) -> str:
    for condition in diagnosis.troubles(derived):
        if condition.type is ConditionType.FAILING:
            break  # ``_newest_run`` describes a failing run with its slot
        is_same_word = condition.reason.value == condition.type.value
        why = "" if is_same_word else f" ({condition.reason})"
        return f"{condition.type}{why}: {condition.message}"
    return ""


def _newest_run(runs: summaries.Summary) -> str:
    last, failure = runs.last_run, runs.failure
    if last is not None and texts.is_retrying(last):
        return f"the run of {instant(last.slot_us)} is tried again: {_why(last)}"
    if failure is None:
        return ""
    what = "a run fails again and again" if failure is runs.retried else "the last run failed"
    return f"{what}: {_why(failure)}"


def _why(run: PastSlot | summaries.LastResult | summaries.FailingRun) -> str:
    return f"{run.reason}: {run.message}" if run.message else run.reason
