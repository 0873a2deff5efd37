"""``status.recentRuns``: the last slots of a Schedule, written and read back.

An entry leaves out what is usual (trigger ``Schedule``, one attempt, the reason of a success), so
that ten of them stay small. A slot that was put off and has not started is shown as ``Waiting``
with its reason, and a delivery between two attempts as ``Retrying``; the first is not history, and
is not read back. Newest first. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from duepoint.controller.status import texts
from duepoint.controller.status.texts import instant
from duepoint.runs import history as histories
from duepoint.runs.history import History, PastSlot
from duepoint.runs.run import RunState, cut, is_retry
from duepoint.runs.watermark import OpenSlot, OpenSlots
from duepoint.schedules.conditions import Reason

#: The published outcome of a delivery that failed and waits for its next attempt.
RETRYING = "Retrying"
#: The published outcome of a slot that was put off and has not started.
WAITING = "Waiting"
#: Waiting slots that are shown beside those that began or ended.
_MOST_WAITING = 3

_FIELD = "recentRuns"
_USUAL_REASONS = frozenset({Reason.SUCCEEDED.value, Reason.CREATED.value, Reason.RUNNING.value})


def as_shown(slot: PastSlot) -> PastSlot:
    """A slot that the queue has kept, as a status would have it."""
    return replace(
        slot,
        outcome=str(slot.outcome),
        reason="" if slot.reason in _USUAL_REASONS else slot.reason,
        attempts=slot.attempts if slot.started_us else 0,
    )


def fields(history: History, open_slots: OpenSlots, last: Mapping[str, Any]) -> dict[str, Any]:
    """The status field; empty where no slot is known.

    Args:
        last: the published status; a waiting slot keeps its reason until a newer one is known.
    """
    begun = {entry.slot_us for entry in history if entry.is_regular}
    waiting = [slot for slot in open_slots.waiting(_MOST_WAITING) if slot.slot_us not in begun]
    before = {
        str(entry.get("scheduledTime")): entry
        for entry in _listed(last)
        if entry.get("outcome") == WAITING
    }
    rows = [(slot.slot_us, _waiting(slot, before.get(instant(slot.slot_us)))) for slot in waiting]
    rows = [(slot_us, row) for slot_us, row in rows if "reason" in row]
    rows += [(max(entry.order), _entry(entry)) for entry in history]
    rows.sort(key=lambda row: row[0], reverse=True)
    return {_FIELD: [row for _, row in rows[: histories.MOST]]} if rows else {}


def history(status: Mapping[str, Any]) -> History:
    """The history that a status shows; entries that are not ours are left out."""
    entries = tuple(filter(None, map(_past, shown(status))))
    return entries[: histories.MOST]


def shown(status: Mapping[str, Any]) -> Iterator[PastSlot]:
    """The slots that a status shows, as they are written there."""
    for row in _listed(status):
        if slot_us := texts.instant_us(row.get("scheduledTime")):
            yield _shown(row, slot_us)


def _entry(entry: PastSlot) -> dict[str, Any]:
    is_running = entry.outcome == RunState.RUNNING
    retries = is_running and is_retry(entry.reason, has_job=bool(entry.job_name))
    row: dict[str, Any] = {
        "scheduledTime": instant(entry.slot_us),
        "since": instant(entry.since_us) if entry.since_us else None,
        "count": entry.count if entry.count > 1 else None,
        "trigger": entry.trigger if entry.trigger != "Schedule" else None,
        "startTime": instant(entry.started_us) if entry.started_us else None,
        "finishTime": instant(entry.finished_us) if entry.finished_us else None,
        "outcome": RETRYING if retries else str(entry.outcome),
        "reason": None if entry.reason in _USUAL_REASONS else entry.reason or None,
        "message": None if entry.outcome == RunState.SUCCEEDED else entry.message or None,
        "jobName": entry.job_name or None,
        "httpStatus": None if entry.outcome == RunState.SUCCEEDED else entry.http_status,
        "attempts": entry.attempts if entry.attempts > 1 else None,
    }
    return {name: value for name, value in row.items() if value is not None}


def _waiting(slot: OpenSlot, before: Mapping[str, Any] | None) -> dict[str, Any]:
    if not slot.reason:
        return dict(before or {})
    row = {"scheduledTime": instant(slot.slot_us), "outcome": WAITING, "reason": slot.reason}
    if slot.message:
        row["message"] = cut(slot.message, histories.MESSAGE_LIMIT)
    return row


def _listed(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = status.get(_FIELD)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _past(slot: PastSlot) -> PastSlot | None:
    """A slot that began or ended; None for one that waits, or an outcome that is unknown here."""
    outcome = RunState.RUNNING.value if slot.outcome == RETRYING else slot.outcome
    if outcome not in set(RunState) or outcome == RunState.PENDING:
        return None
    return replace(slot, outcome=RunState(outcome))


def _shown(row: Mapping[str, Any], slot_us: int) -> PastSlot:
    return PastSlot(
        slot_us=slot_us,
        outcome=str(row.get("outcome") or ""),
        reason=str(row.get("reason") or ""),
        message=str(row.get("message") or ""),
        trigger=str(row.get("trigger") or "Schedule"),
        started_us=texts.instant_us(row.get("startTime")),
        finished_us=texts.instant_us(row.get("finishTime")),
        attempts=_number(row.get("attempts"), 1 if row.get("startTime") else 0),
        job_name=str(row.get("jobName") or ""),
        http_status=row.get("httpStatus"),
        since_us=texts.instant_us(row.get("since")),
        count=_number(row.get("count"), 1),
    )


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and value > 0 else otherwise
