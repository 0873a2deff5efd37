"""Schedules and ScheduleSets of the API server -> what the pages show of them. Pure.

Texts of a status go on as they are: the page shows them, and the reference of the objects says
what they mean. An object that cannot be read is shown as such and spoils no page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from duepoint import errors
from duepoint.kube import schedules as objects
from duepoint.kube import times
from duepoint.schedules import diagnosis, slots
from duepoint.schedules.conditions import ConditionType, Reason
from duepoint.schedules.diagnosis import ScheduleHealth, Shown

UPCOMING: Final = 5
#: What is finer in the text of an instant cannot be compared as text.
_WHOLE_SECONDS: Final = len("2026-03-01T00:00:00")
_NOTHING: Final = diagnosis.ADVICE[Reason.ARMED]
_SET_PROBLEMS: Final = frozenset({ConditionType.ROWS_INVALID, ConditionType.DATA_LOST})


class _Spec(msgspec.Struct, rename="camel"):
    schedule: str | None = None
    schedules: tuple[str, ...] | None = None
    time_zone: str | None = None
    suspend: bool | None = None
    suspend_until: str | None = None
    suspend_reason: str | None = None


class _Slot(msgspec.Struct, rename="camel", omit_defaults=True):
    """An entry of ``status.recentRuns``; ``finishTime`` and so on are as the status has them."""

    scheduled_time: str = ""
    since: str | None = None
    count: int = 1
    trigger: str = "Schedule"
    start_time: str | None = None
    finish_time: str | None = None
    outcome: str = ""
    reason: str = ""
    message: str = ""
    job_name: str = ""
    http_status: int | None = None
    attempts: int = 0

    @property
    def newest(self) -> str:
        """Greater is newer: a run of an old slot, made by hand, is as new as its start."""
        return max(self.start_time or "", self.scheduled_time)[:_WHOLE_SECONDS]


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = -1
    conditions: tuple[Shown, ...] | None = None
    next_schedule_time: str | None = None
    last_schedule_time: str | None = None
    recent_runs: tuple[_Slot, ...] | None = None
    active_count: int | None = None
    target: str | None = None
    managed_by: str | None = None


class _SetStatus(msgspec.Struct, rename="camel"):
    observed_generation: int = -1
    conditions: tuple[Shown, ...] | None = None
    members: int | None = None
    in_flight: int | None = None
    next_due_time: str | None = None
    last_schedule_time: str | None = None
    lag_seconds: float | None = None
    target: str | None = None


_spec_decoder = msgspec.json.Decoder(_Spec)
_status_decoder = msgspec.json.Decoder(_Status)
_set_decoder = msgspec.json.Decoder(_SetStatus)


def schedule(item: objects.Schedule, now_us: int) -> dict[str, Any]:
    """A line of the list of Schedules; what is usual is left out."""
    return _row(item, _decoded(item), now_us)


def _decoded(item: objects.Schedule) -> tuple[_Spec, _Status] | None:
    """None where another version has written fields of another type."""
    try:
        return _spec_decoder.decode(item.spec), _status_decoder.decode(item.status)
    except (msgspec.DecodeError, RecursionError):
        return None


def _row(
    item: objects.Schedule, decoded: tuple[_Spec, _Status] | None, now_us: int
) -> dict[str, Any]:
    place = {"namespace": item.metadata.namespace, "name": item.metadata.name}
    if decoded is None:
        return {**place, "health": "problem", "reason": "Unreadable"}
    spec, status = decoded
    newest = next(iter(status.recent_runs or ()), None)
    found = diagnosis.of(
        status.conditions or (),
        is_current=status.observed_generation >= item.metadata.generation,
        is_suspended=objects.is_suspended(spec.suspend, spec.suspend_until, now_us),
    )
    about = found.about
    row = {
        **place,
        "schedule": spec.schedule or ", ".join(spec.schedules or ()),
        "timeZone": spec.time_zone,
        "next": status.next_schedule_time,
        "last": status.last_schedule_time,
        "result": newest.outcome if newest else None,
        "target": status.target,
        "health": found.health.value,
        "reason": about.reason if about else None,
        "message": about.message[:200] if about else None,
    }
    return {name: value for name, value in row.items() if value}


# -- one Schedule --------------------------------------------------------------------------------


def detail(item: objects.Schedule, now_us: int) -> dict[str, Any]:
    """A Schedule's page."""
    decoded = _decoded(item)
    spec, status = decoded or (_Spec(), _Status())
    conditions = _shown(status.conditions or ())
    listed = sorted(status.recent_runs or (), key=lambda slot: slot.newest, reverse=True)
    place = {"namespace": item.metadata.namespace, "name": item.metadata.name}
    zone = spec.time_zone or "Etc/UTC"
    upcoming, wrong = _upcoming(item, now_us)
    reasons = {each.reason for each in conditions} | {each.reason for each in listed}
    return {
        **_row(item, decoded, now_us),
        "uid": item.metadata.uid,
        "createdTime": item.metadata.creation_timestamp,
        "timeZone": zone,
        "suspend": bool(spec.suspend),
        "suspendUntil": spec.suspend_until,
        "suspendReason": spec.suspend_reason,
        "activeCount": status.active_count or 0,
        "managedBy": status.managed_by,
        "conditions": [
            {
                "type": each.type,
                "reason": each.reason,
                "message": each.message,
                "sinceTime": each.last_transition_time,
            }
            for each in conditions
        ],
        "invalid": wrong,
        "upcoming": upcoming,
        "slots": listed,
        "advice": {
            reason: steps
            for reason in sorted(reasons)
            if (steps := _advice(reason, place["namespace"], place["name"]))
        },
        "spec": item.spec,
    }


def _shown(conditions: Iterable[Shown]) -> list[Shown]:
    """Ready and those that are True; the trouble that ``Failing`` repeats stands once."""
    true = [
        each for each in conditions if each.status == "True" or each.type == ConditionType.READY
    ]
    troubles = diagnosis.troubles(true)
    is_repeated = bool(troubles) and troubles[0].type != ConditionType.FAILING
    kept = [each for each in true if not (is_repeated and each.type == ConditionType.FAILING)]
    messages = [each.message for each in kept]
    return [each for place, each in enumerate(kept) if not _is_said(place, messages)]


def _is_said(place: int, messages: list[str]) -> bool:
    """Whether an earlier condition says the same, or another one the very cause within it."""
    own = messages[place]
    parts = {each for each in messages if each and each != own and each in own}
    return bool(parts) or (own != "" and own in messages[:place])


def _text(instant_us: int) -> str | None:
    """As a status writes instants: whole seconds without a fraction."""
    if not instant_us:
        return None
    write = times.micro_time_text if instant_us % 1_000_000 else times.time_text
    return write(instant_us)


def _advice(reason: str, namespace: str, name: str) -> list[str]:
    if reason not in diagnosis.ADVICE:
        return []
    steps = diagnosis.steps_for(reason, namespace=namespace, name=name)
    return [] if steps == _NOTHING else list(steps)


def _upcoming(item: objects.Schedule, now_us: int) -> tuple[list[str], str]:
    """The next times, and why there are none where the spec is wrong."""
    try:
        spec = objects.spec_of(item)
    except errors.InvalidSpec as error:
        return [], str(error)[:1_000]
    timing = spec.rule.timing
    from_us = now_us
    if timing.suspend:
        if timing.suspend_until_us is None:
            return [], ""
        from_us = max(now_us, timing.suspend_until_us - 1)
    line = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    found = line.upcoming(from_us, UPCOMING)
    return [text for each in found if (text := _text(each))], ""


# -- sets ----------------------------------------------------------------------------------------


def schedule_set(item: objects.ScheduleSet) -> dict[str, Any]:
    """A line of the list of ScheduleSets."""
    place = {"namespace": item.metadata.namespace, "name": item.metadata.name}
    try:
        status = _set_decoder.decode(item.status)
    except (msgspec.DecodeError, RecursionError):
        return {**place, "health": "problem", "reason": "Unreadable"}
    conditions = {each.type: each for each in status.conditions or () if each.status == "True"}
    health, about = _set_health(conditions, is_known=status.observed_generation >= 0)
    row = {
        **place,
        "members": status.members,
        "inFlight": status.in_flight,
        "next": status.next_due_time,
        "last": status.last_schedule_time,
        "lagSeconds": status.lag_seconds,
        "target": status.target,
        "health": health,
        "reason": about.reason if about else None,
        "message": about.message[:200] if about else None,
    }
    return {name: value for name, value in row.items() if value is not None}


def _set_health(
    conditions: dict[str, Shown], *, is_known: bool
) -> tuple[ScheduleHealth, Shown | None]:
    order = (
        (ConditionType.STALLED, ScheduleHealth.PROBLEM),
        *((each, ScheduleHealth.PROBLEM) for each in sorted(_SET_PROBLEMS)),
        (ConditionType.DELETING, ScheduleHealth.WAITING),
        (ConditionType.RECONCILING, ScheduleHealth.WAITING),
        (ConditionType.SUSPENDED, ScheduleHealth.SUSPENDED),
    )
    for type_, health in order:
        if (found := conditions.get(type_)) is not None:
            return health, found
    if not is_known:
        return ScheduleHealth.WAITING, diagnosis.UNSEEN
    return ScheduleHealth.OK, None
