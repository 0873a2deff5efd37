"""Parsing of a Schedule's published status.

A new leader reads the status of every object, so ``of``, ``answered_generation`` and the other
functions on JSON text decode only the fields that a decision needs. ``summary`` reads all that
counting needs from a decoded status, so a new leader continues where the last one stopped. A text
or a field that Duepoint did not write counts as absent.

Published statuses are most of an operator's memory, so they are kept compressed, at half the size.
Pure.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from duepoint.controller.plan import PublishedStatus
from duepoint.controller.status import texts
from duepoint.kube import times
from duepoint.runs import summary as summaries
from duepoint.runs.receiver import Note, ReceiverState
from duepoint.runs.run import REGULAR
from duepoint.schedules import diagnosis
from duepoint.schedules.conditions import WITHOUT_SLOTS, ConditionType, Reason

RETRYING = texts.RETRYING


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = -1


class _Runs(msgspec.Struct):
    """Run counts; ``started`` includes manual runs, which belong to no regular slot."""

    started: int = 0
    manual: int = 0


class _OpenSlots(msgspec.Struct):
    """Open slots as ``texts.slots_text`` writes them."""

    started: str = ""
    waiting: str = ""


class _RecentRun(msgspec.Struct, rename="camel"):
    scheduled_time: str = ""
    trigger: str = "Schedule"
    outcome: str = ""


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = -1
    settled_through: str | None = None
    open_slots: _OpenSlots | None = None
    timing_hash: str = ""
    conditions: list[_Condition] | None = None
    runs: _Runs | None = None
    recent_runs: list[_RecentRun] | None = None
    next_schedule_time: str | None = None
    managed_by: str = ""

    @property
    def ready(self) -> _Condition | None:
        return next((one for one in self.conditions or () if one.type == ConditionType.READY), None)


_NONE_OPEN = _OpenSlots()
_decoder = msgspec.json.Decoder(_Status)


@functools.lru_cache(maxsize=4)  # a new leader calls several functions on each status
def _read(status: bytes) -> _Status:
    """Parse a status; empty if it is not ours."""
    try:
        return _decoder.decode(status)
    except msgspec.DecodeError:
        return _Status()


# -- for decisions -----------------------------------------------------------------------------


def of(status: bytes) -> PublishedStatus:
    """Return the published status as ``plan`` takes it; empty if it is not ours."""
    fields = _read(status)
    try:
        settled_us = times.parse_us(fields.settled_through) if fields.settled_through else None
    except ValueError:
        return PublishedStatus()
    slots, ready = fields.open_slots or _NONE_OPEN, fields.ready or _Condition()
    stalled = [one for one in fields.conditions or () if one.type == ConditionType.STALLED]
    return PublishedStatus(
        observed_generation=fields.observed_generation,
        accepted=has_accepted(status, fields.observed_generation),
        settled_us=settled_us,
        timing_hash=fields.timing_hash,
        started_us=texts.parse_slots(slots.started),
        waiting_us=texts.parse_slots(slots.waiting),
        retried_us=_retried_us(fields.recent_runs or (), settled_us or 0),
        armed=ready.reason == Reason.ARMED,
        suspended=ready.reason == Reason.SUSPENDED,
        stalled=stalled[0].message if stalled else "",
        waits=ready.status == "Unknown",
        started=0 if fields.runs is None else max(0, fields.runs.started - fields.runs.manual),
    )


def _retried_us(recent: Iterable[_RecentRun], settled_us: int) -> tuple[int, ...]:
    """Return regular slots above the watermark with a delivery being retried, oldest first."""
    found = {
        texts.instant_us(run.scheduled_time)
        for run in recent
        if run.outcome == RETRYING and run.trigger in REGULAR
    }
    return tuple(sorted(slot_us for slot_us in found if slot_us > settled_us))


def answered_generation(status: bytes) -> int:
    """Return the newest generation that was accepted or refused; -1 = none.

    An observed generation that waits for something is neither; nor are those before it, if the
    status has no watermark.
    """
    fields = _read(status)
    observed = fields.observed_generation
    if fields.ready is None or fields.ready.status != "Unknown":
        return observed
    return observed - 1 if observed > 1 and fields.settled_through else -1


def has_accepted(status: bytes, generation: int) -> bool:
    """Whether the published status says that this very generation is accepted."""
    fields = _read(status)
    if fields.ready is None or fields.ready.status != "True":
        return False
    return fields.ready.observed_generation == fields.observed_generation == generation


def observed_generation(status: bytes) -> int:
    """Return ``observedGeneration``; -1 = none."""
    return _read(status).observed_generation


def next_us(status: bytes) -> int:
    """Return ``nextScheduleTime`` in microseconds; 0 = none."""
    return texts.instant_us(_read(status).next_schedule_time)


def may_show_running(status: bytes) -> bool:
    """Whether the JSON text of a status may list active runs; cheaper than decoding it."""
    return b'"activeCount"' in status or b'"Running"' in status


def mark(managed_by: str) -> bytes:
    """Return the JSON text in every status of an installation; empty if it has no name."""
    return b'"managedBy":' + msgspec.json.encode(managed_by) if managed_by else b""


def managed_by(status: bytes) -> str:
    """Return the installation that wrote a status; empty if the status does not say."""
    return _read(status).managed_by


# -- for counting ------------------------------------------------------------------------------


def summary(status: Mapping[str, Any], schedule_name: str) -> summaries.Summary:
    """Return the summary of runs that a status of this Schedule was rendered from."""
    runs = _mapping(status.get("runs"))
    counts = summaries.RunTotals(**{name: _count(runs, name) for name in _COUNTS})
    running = texts.running(status, schedule_name)
    success_us = texts.instant_us(status.get("lastSuccessfulTime"))
    failure_us = texts.instant_us(status.get("lastFailureTime"))
    # If a type occurs twice, the first condition counts.
    conditions = {str(one.get("type")): one for one in reversed(conditions_of(status))}
    settled_us = texts.instant_us(status.get("settledThrough"))
    last_slot_us = texts.instant_us(status.get("lastScheduleTime"))
    ready = conditions.get(ConditionType.READY, {})
    missed = None
    if (taken := conditions.get(ConditionType.NAME_CONFLICT)) is not None:
        missed = summaries.MissedSlot(
            slot_us=max(settled_us, last_slot_us),  # not published; at most the newest ended slot
            reason=Reason.NAME_CONFLICT,
            message=str(taken.get("message") or ""),
        )
    elif (shown := conditions.get(ConditionType.MISSED)) is not None:
        message, reason = str(shown.get("message") or ""), str(shown.get("reason") or "")
        missed = texts.missed_slot(message, reason)
    last_result = _last_result(
        conditions.get(ConditionType.LAST_RUN_SUCCEEDED), max(success_us, failure_us)
    )
    return summaries.Summary(
        # The counts in another writer's status may not add up.
        counts=msgspec.structs.replace(counts, started=counts.ended + len(running)),
        running=running,
        last_run=texts.last_run_of(status),
        history=texts.history(status),
        last_slot_us=last_slot_us,
        last_success_us=success_us,
        last_failure_us=failure_us,
        last_result=last_result,
        retried=_retried(conditions, last_result),
        settled_us=settled_us,
        completed=ready.get("reason") in WITHOUT_SLOTS,
        missed=missed,
        receiver=ReceiverState(
            gone=_note(conditions.get(ConditionType.ENDPOINT_GONE)),
            waits=_note(conditions.get(ConditionType.CIRCUIT_OPEN)),
        ),
    )


_COUNTS = ("started", "succeeded", "failed", "replaced", "missed", "skipped", "manual")


def _count(runs: Mapping[str, Any], name: str) -> int:
    value = runs.get(name)
    return value if isinstance(value, int) else 0


def _last_result(condition: Mapping[str, Any] | None, at_us: int) -> summaries.LastResult | None:
    if condition is None:
        return None
    return summaries.LastResult(
        at_us=at_us,
        succeeded=condition.get("status") == "True",
        reason=str(condition.get("reason") or ""),
        message=str(condition.get("message") or ""),
    )


def _retried(
    conditions: Mapping[str, Mapping[str, Any]], last_result: summaries.LastResult | None
) -> summaries.FailingRun | None:
    """Return the run that keeps failing; its slot is not published."""
    failing = conditions.get(ConditionType.FAILING)
    if failing is None or (last_result is not None and not last_result.succeeded):
        return None
    true = [
        _Condition(type=name, status=str(one.get("status"))) for name, one in conditions.items()
    ]
    if [one.type for one in diagnosis.troubles(true)] != [ConditionType.FAILING]:
        return None
    since_us = texts.instant_us(failing.get("lastTransitionTime"))
    return summaries.FailingRun(
        slot_us=0,
        begun_us=since_us,
        at_us=since_us,
        reason=str(failing.get("reason") or ""),
        message=str(failing.get("message") or ""),
    )


def _note(condition: Mapping[str, Any] | None) -> Note | None:
    """Return the note of a condition; its time is not published, so any event replaces it."""
    if condition is None or condition.get("status") != "True":
        return None
    generation = condition.get("observedGeneration")
    return Note(
        generation=generation if isinstance(generation, int) else 0,
        at_us=0,
        message=str(condition.get("message") or ""),
    )


def conditions_of(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the published conditions; entries that are not conditions are left out."""
    listed = status.get("conditions")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@functools.lru_cache(maxsize=2)  # each rendering reads the same status several times
def read(status: bytes) -> dict[str, Any]:
    """Decompress and decode a status, read-only; empty if the text is not a JSON object."""
    try:
        fields = msgspec.json.decode(zlib.decompress(status))
    except msgspec.DecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
