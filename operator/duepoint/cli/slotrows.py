"""The last slots of a Schedule, as a status or the queue shows them, in rows and columns."""

from __future__ import annotations

from duepoint.cli import instants, output
from duepoint.runs.history import PastSlot
from duepoint.schedules import manualruns

_SECOND_US = 1_000_000
#: How a run that no due time has started is named beside its slot.
_BY_HAND = {manualruns.TRIGGER_MANUAL: "by hand", manualruns.TRIGGER_BACKFILL: "run again"}


def row(slot: PastSlot) -> output.Row:
    """A slot under the names of the JSON output."""
    late_us = slot.started_us - slot.slot_us if slot.started_us else None
    return {
        "scheduledTime": output.time(slot.slot_us),
        "since": output.time(slot.since_us or None),
        "count": slot.count,
        "trigger": slot.trigger,
        "outcome": slot.outcome,
        "reason": slot.reason,
        "message": slot.message,
        "lateSeconds": None if late_us is None else max(0, late_us) / _SECOND_US,
        "tookSeconds": _took(slot),
        "attempts": slot.attempts,
        "jobName": slot.job_name,
        "httpStatus": slot.http_status,
    }


def _took(slot: PastSlot) -> float | None:
    if not (slot.started_us and slot.finished_us):
        return None
    return max(0, slot.finished_us - slot.started_us) / _SECOND_US


def columns(zone: str) -> output.Columns:
    """Of a table of slots, in the Schedule's zone."""
    local = instants.LocalTime(zone)

    def when(row: output.Row) -> str:
        slot = local.text(instants.strict_us(str(row["scheduledTime"])))
        if row["count"] > 1:
            return f"{slot} (and {row['count'] - 1} before)"
        how = _BY_HAND.get(row["trigger"], "")
        return f"{slot} ({how})" if how else slot

    return {
        "slot": when,
        "outcome": "outcome",
        "late": lambda row: _span(row["lateSeconds"]),
        "took": lambda row: _span(row["tookSeconds"]),
        "attempts": lambda row: str(row["attempts"] or ""),
        "why": lambda row: ": ".join(filter(None, (row["reason"], row["message"]))),
    }


def _span(seconds: float | None) -> str:
    return "" if seconds is None else output.span(seconds)
