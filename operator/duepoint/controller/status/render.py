"""The rendering of a Schedule's status from its state; no other module sets its fields.

``status_at(state, now_us)`` returns the whole status as it should be at an instant. A condition or
field that this process has not determined yet is copied from the published status, so a takeover
writes no status that is already right. Ready's message names the worst current problem, because
that line is what users see in a list. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from duepoint.controller import plan, statusconditions
from duepoint.controller.status import published
from duepoint.controller.status.published import Status, instant, instant_or_empty
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.statusconditions import known_reason
from duepoint.runs import summary as summaries
from duepoint.runs import watermark
from duepoint.runs.history import PastSlot
from duepoint.runs.run import Note
from duepoint.schedules import conditions, diagnosis
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.definition import State
from duepoint.schedules.diagnosis import Shown

#: How many upcoming slots a status lists.
UPCOMING = 5


def status_at(state: ScheduleState, now_us: int) -> Status:
    """Return the whole status as it should be at an instant."""
    last, runs = state.last(), state.runs()
    settled = watermark.settled(state.open, runs.settled_us)
    upcoming = _upcoming(state, runs, last, now_us)
    timing_hash = "" if state.holds_nothing else last.timing_hash
    if state.definition is not None:
        timing_hash = rules.timing_hash(state.definition.rule)
    return Status(
        observed_generation=state.generation,
        conditions=_conditions(state, runs, last, now_us),
        settled_through=instant_or_empty(runs.settled_us),
        last_schedule_time=instant_or_empty(runs.last_slot_us),
        last_successful_time=instant_or_empty(runs.last_success_us),
        last_failure_time=instant_or_empty(runs.last_failure_us),
        open_slots=published.open_slots(settled),
        last_run=None if runs.last_run is None else published.last_run(runs.last_run),
        runs=runs.counts,
        recent_runs=published.recent_runs(runs.history, state.open),
        next_schedule_time=upcoming[0] if upcoming else "",
        upcoming_times=upcoming,
        active=published.active(runs.running, state.owner),
        active_count=len(runs.running),
        target=last.target if state.target is None else state.target,
        timing_hash=timing_hash,
        managed_by=state.managed_by,
    )


# -- slots -------------------------------------------------------------------------------------


def _upcoming(
    state: ScheduleState, runs: summaries.Summary, last: Status, now_us: int
) -> list[str]:
    known = state.definition
    if state.holds_nothing or runs.completed:
        return []
    if known is None:
        return last.upcoming_times
    if known.state is not State.ARMED:
        return []
    most = known.rule.timing.max_runs
    count = UPCOMING if most is None else max(0, min(UPCOMING, most - runs.counts.regular))
    slots_us = plan.slots_of(known).upcoming(max(now_us, known.not_before_us), count)
    return [instant(slot_us) for slot_us in slots_us]


# -- conditions --------------------------------------------------------------------------------


def _conditions(
    state: ScheduleState, runs: summaries.Summary, last: Status, now_us: int
) -> list[Shown]:
    derived = list(_derived(state, runs, now_us))
    if (failing := _failing(derived, runs)) is not None and not _rests(state, now_us):
        derived.append(failing)
    reported = [_ready(one, state, runs, derived, now_us) for one in state.reported_conditions()]
    listed = conditions.rendered(
        (*reported, *derived),
        generation=state.generation,
        now=instant(now_us - now_us % 1_000_000),
        previous=msgspec.to_builtins(last.conditions),
    )
    return msgspec.convert(listed, list[Shown])


def _derived(state: ScheduleState, runs: summaries.Summary, now_us: int) -> Iterable[Condition]:
    """Yield the conditions that follow from runs, slots and Jobs."""
    if (result := runs.last_result) is not None:
        yield conditions.last_run(
            succeeded=result.is_success,
            reason=known_reason(result.reason, Reason.REJECTED),
            message=result.message,
        )
    if (slot := watermark.overdue(state.open, now_us)) is not None:
        message = f"the slot of {instant(slot.slot_us)} has not started: {slot.message}"
        reason = known_reason(slot.reason, Reason.REJECTED)
        yield conditions.true(ConditionType.OVERDUE, reason, message)
    if runs.missed is not None:
        reason = known_reason(runs.missed.reason, Reason.REJECTED)
        is_taken = reason is Reason.NAME_CONFLICT
        type_ = ConditionType.NAME_CONFLICT if is_taken else ConditionType.MISSED
        yield conditions.true(type_, reason, runs.missed.message)
    if state.refused_pods:
        yield conditions.true(ConditionType.PODS_REFUSED, Reason.PODS_REFUSED, state.refused_pods)
    if runs.gone is not None and runs.gone.generation >= state.generation:  # an edit ends it
        yield conditions.true(ConditionType.ENDPOINT_GONE, Reason.ENDPOINT_GONE, runs.gone.message)
    if waiting := [slot for slot in state.open if slot.reason == Reason.CIRCUIT_OPEN]:
        yield conditions.true(ConditionType.CIRCUIT_OPEN, Reason.CIRCUIT_OPEN, waiting[-1].message)


def _failing(derived: Iterable[Condition], runs: summaries.Summary) -> Condition | None:
    """Return the Failing condition with the worst known reason, if runs do not succeed."""
    if found := diagnosis.troubles(derived):
        return replace(found[0], type=ConditionType.FAILING)
    if (failure := runs.failure) is None:
        return None
    reason = known_reason(failure.reason, Reason.REJECTED)
    return conditions.true(ConditionType.FAILING, reason, failure.message)


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
        (condition, *_) = conditions.ready(*statusconditions.ARMED)
    if condition.reason is Reason.ARMED and runs.completed:
        condition = replace(condition, reason=statusconditions.reason_without_slots(known))
    is_over = condition.reason in conditions.WITHOUT_SLOTS
    if condition.status != "True" or not (is_over or condition.reason is Reason.ARMED):
        return condition
    _, default = statusconditions.ARMED
    problem = _worst(derived) or _newest_run(runs)
    if is_over:
        default = statusconditions.completion(known, runs.counts.regular)
        problem = f"{default}; {problem}" if problem else ""
    return replace(condition, message=problem or default)


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
    if last is not None and published.is_retrying(last):
        return f"the run of {instant(last.slot_us)} is tried again: {_why(last)}"
    if failure is None:
        return ""
    what = "a run fails again and again" if failure is runs.retried else "the last run failed"
    return f"{what}: {_why(failure)}"


def _why(run: PastSlot | Note) -> str:
    return f"{run.reason}: {run.message}" if run.message else run.reason
