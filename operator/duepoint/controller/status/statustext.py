"""Summaries and instants -> the fields of a status, and back.

``loaded`` reads what an earlier process wrote, so that counting goes on where it stopped; ``shown``
writes it. Instants are RFC 3339 in UTC; a fraction is written only where there is one, because
schedules of less than a second and exact replays need it. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from duepoint.controller.status import activetext, opentext, receivertext
from duepoint.runs import summary as summaries
from duepoint.runs.openslots import OpenSlot, OpenSlots
from duepoint.runs.run import ENDED, RunState, is_retry
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason

instant = opentext.instant
instant_us = opentext.instant_us


# -- writing -----------------------------------------------------------------------------------


def shown(summary: summaries.Summary, open_slots: OpenSlots) -> dict[str, Any]:
    """The fields that a summary fills; those that say nothing are left out."""
    moments = {
        "settledThrough": summary.settled_us,
        "lastScheduleTime": summary.last_slot_us,
        "lastSuccessfulTime": summary.last_success_us,
        "lastFailureTime": summary.last_failure_us,
        "lastReplacedTime": summary.last_replaced_us,
    }
    fields: dict[str, Any] = {name: instant(at_us) for name, at_us in moments.items() if at_us}
    if (listed := opentext.shown(open_slots.settled(summary.settled_us))) is not None:
        fields["openSlots"] = listed
    if summary.last_run is not None:
        fields["lastRun"] = _last_run(summary.last_run)
    counts = summary.counts
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


#: The outcome shown of a delivery that failed and is tried again.
RETRYING = "Retrying"


def is_retrying(run: summaries.LastRun) -> bool:
    """Whether nothing runs: a delivery was tried without success, and waits for its next try."""
    is_running = run.outcome is RunState.RUNNING
    return is_running and is_retry(run.reason, has_job=bool(run.job_name))


def _last_run(run: summaries.LastRun) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "scheduledTime": instant(run.slot_us),
        "startTime": instant(run.started_us) if run.started_us else None,
        "finishTime": instant(run.finished_us) if run.finished_us else None,
        "trigger": run.trigger,
        "outcome": RETRYING if is_retrying(run) else run.outcome.value,
        "reason": run.reason or None,
        "message": run.message[: conditions.MESSAGE_LIMIT] or None,
        "jobName": run.job_name or None,
        "httpStatus": run.http_status,
        "attempts": run.attempts or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def last_run_condition(summary: summaries.Summary) -> Condition | None:
    """How the newest finished run went, if any has finished."""
    verdict = summary.verdict
    if verdict is None:
        return None
    return conditions.last_run(
        succeeded=verdict.succeeded,
        reason=_reason(verdict.reason, succeeded=verdict.succeeded),
        message=verdict.message,
    )


def overdue_condition(slot: OpenSlot, previous: Iterable[Mapping[str, Any]]) -> Condition:
    """A slot is late by a minute and was put off; what the queue does not keep is still shown."""
    told = f"the slot of {instant(slot.slot_us)} has not started: "
    message = told + slot.message
    for one in previous:
        shown = str(one.get("message") or "")
        is_known = one.get("reason") == slot.reason and shown.startswith(told)
        if one.get("type") == ConditionType.OVERDUE and is_known and not slot.message:
            message = shown
    return Condition(
        type=ConditionType.OVERDUE,
        status="True",
        reason=_reason(slot.reason, succeeded=False),
        message=message,
    )


def conflict_condition(conflict: summaries.Conflict) -> Condition:
    """The name of the newest slot's Job belongs to something else."""
    return Condition(
        type=ConditionType.NAME_CONFLICT,
        status="True",
        reason=Reason.NAME_CONFLICT,
        message=conflict.message,
    )


def pods_condition(message: str) -> Condition:
    """A Job exists and gets no Pods."""
    return Condition(
        type=ConditionType.PODS_REFUSED,
        status="True",
        reason=Reason.PODS_REFUSED,
        message=message,
    )


def _reason(text: str, *, succeeded: bool) -> Reason:
    """Events of another version may carry a reason that this one does not know."""
    try:
        return Reason(text)
    except ValueError:
        return Reason.SUCCEEDED if succeeded else Reason.REJECTED


# -- reading -----------------------------------------------------------------------------------


def loaded(status: Mapping[str, Any], schedule_name: str) -> summaries.Summary:
    """The summary behind a status that we, or an earlier process, wrote of that Schedule."""
    runs = _mapping(status.get("runs"))
    counts = summaries.Counts(**{name: _count(runs, name) for name in _COUNTS})
    running = activetext.loaded(status, schedule_name, counts.started - counts.ended)
    success_us = instant_us(status.get("lastSuccessfulTime"))
    failure_us = instant_us(status.get("lastFailureTime"))
    listed = _conditions(status)
    settled_us = instant_us(status.get("settledThrough"))
    last_slot_us = instant_us(status.get("lastScheduleTime"))
    return summaries.loaded(
        summaries.Summary(
            # A status of another version, or of somebody else, may not add up.
            counts=dataclasses.replace(counts, started=counts.ended + running.count),
            running=running,
            last_run=_loaded_run(_mapping(status.get("lastRun"))),
            last_slot_us=last_slot_us,
            last_success_us=success_us,
            last_failure_us=failure_us,
            last_replaced_us=instant_us(status.get("lastReplacedTime")),
            verdict=_loaded_verdict(listed, max(success_us, failure_us)),
            settled_us=settled_us,
            completed=_is_completed(listed),
            conflict=_loaded_conflict(listed, max(settled_us, last_slot_us)),
            receiver=receivertext.loaded(listed),
        ),
        opentext.loaded(status),
    )


_COUNTS = ("started", "succeeded", "failed", "replaced", "missed", "skipped", "manual")


def _count(runs: Mapping[str, Any], name: str) -> int:
    value = runs.get(name)
    return value if isinstance(value, int) else 0


_OUTCOMES = ENDED | {RunState.RUNNING}


def _loaded_run(fields: Mapping[str, Any]) -> summaries.LastRun | None:
    outcome = RunState.RUNNING if fields.get("outcome") == RETRYING else fields.get("outcome")
    if outcome not in _OUTCOMES:
        return None
    return summaries.LastRun(
        slot_us=instant_us(fields.get("scheduledTime")),
        trigger=str(fields.get("trigger") or "Schedule"),
        outcome=RunState(outcome),
        reason=str(fields.get("reason") or ""),
        message=str(fields.get("message") or ""),
        started_us=instant_us(fields.get("startTime")),
        finished_us=instant_us(fields.get("finishTime")),
        job_name=str(fields.get("jobName") or ""),
        http_status=fields.get("httpStatus"),
        attempts=_count(fields, "attempts"),
    )


def _loaded_verdict(listed: list[Mapping[str, Any]], at_us: int) -> summaries.Verdict | None:
    for one in listed:
        if one.get("type") == ConditionType.LAST_RUN_SUCCEEDED:
            return summaries.Verdict(
                at_us=at_us,
                succeeded=one.get("status") == "True",
                reason=str(one.get("reason") or ""),
                message=str(one.get("message") or ""),
            )
    return None


def _loaded_conflict(listed: list[Mapping[str, Any]], slot_us: int) -> summaries.Conflict | None:
    """Of which slot is not written; it is at most the newest that has ended."""
    for one in listed:
        if one.get("type") == ConditionType.NAME_CONFLICT:
            return summaries.Conflict(slot_us=slot_us, message=str(one.get("message") or ""))
    return None


def _is_completed(listed: list[Mapping[str, Any]]) -> bool:
    return any(
        one.get("type") == ConditionType.READY and one.get("reason") == Reason.COMPLETED
        for one in listed
    )


def _conditions(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = status.get("conditions")
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
