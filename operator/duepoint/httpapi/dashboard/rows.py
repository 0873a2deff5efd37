"""Converts Schedules and ScheduleSets of the API server to what the pages show. Pure.

Texts of a status stay as they are; the reference of the objects explains them. An object that
cannot be read is shown as unreadable and does not break the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from duepoint.kube import schedules as objects
from duepoint.model.vocabulary import Fields, Time, choices, within
from duepoint.schedules import diagnosis
from duepoint.schedules.conditions import ConditionType, Reason
from duepoint.schedules.diagnosis import Diagnosis, Row, ScheduleHealth, Shown

#: Instants are compared as text up to whole seconds; fractions differ in length.
_WHOLE_SECONDS: Final = len("2026-03-01T00:00:00")
_NOTHING: Final = diagnosis.ADVICE[Reason.ARMED]
_UNREADABLE: Final = Diagnosis(health=ScheduleHealth.PROBLEM, about=Shown(reason="Unreadable"))
#: The health of a set by its conditions, the worst first.
_SET_HEALTH: Final = {
    ConditionType.STALLED: ScheduleHealth.PROBLEM,
    ConditionType.DATA_LOST: ScheduleHealth.PROBLEM,
    ConditionType.ROWS_INVALID: ScheduleHealth.PROBLEM,
    ConditionType.DELETING: ScheduleHealth.WAITING,
    ConditionType.RECONCILING: ScheduleHealth.WAITING,
    ConditionType.SUSPENDED: ScheduleHealth.SUSPENDED,
}


class Standing(Fields, kw_only=True, omit_defaults=True):
    """The state of an object in a list; empty fields are left out."""

    namespace: str
    name: str
    health: Annotated[
        str,
        choices("ok", "failing", "problem", "waiting", "suspended", "completed"),
        "problem: the spec is refused, or waits for something that has to be mended; "
        "failing: its runs fail, are late or are missed; "
        "waiting: the newest edit is not in force yet",
    ]
    reason: Annotated[str, "of the condition or the slot that health is about"] = ""
    message: str = ""
    next: Annotated[Time, "the next slot; absent: there is none"] = ""
    last: Annotated[Time, "the slot of the newest started run"] = ""
    target: str = ""


class ScheduleRow(Standing, kw_only=True, omit_defaults=True):
    """A line of the list of Schedules."""

    schedule: Annotated[str, "its expressions, with commas between"] = ""
    time_zone: str = ""
    result: Annotated[str, "outcome of the newest slot"] = ""


class SetRow(Standing, kw_only=True, omit_defaults=True):
    """A line of the list of ScheduleSets."""

    members: Annotated[int | None, within(0)] = None
    in_flight: Annotated[int | None, within(0)] = None
    lag_seconds: float | None = None


class Rights(Fields, kw_only=True):
    """The operations that the caller may use, and so the buttons that the page shows."""

    suspend: bool
    trigger: bool
    replay: bool


class ScheduleDetail(ScheduleRow, kw_only=True, omit_defaults=True):
    """A Schedule's page."""

    conditions: Annotated[tuple[Any, ...], "Ready, and those that are True and repeat no other"]
    upcoming: tuple[Time, ...]
    slots: Annotated[tuple[Any, ...], "newest first: the entries of status.recentRuns"]
    advice: Annotated[Any, "what to do next, by reason"]
    spec: Annotated[Any, "of the object, unchanged"]
    may: Rights


class Spec(msgspec.Struct, rename="camel"):
    """The fields of a Schedule's spec that the pages show."""

    schedule: str | None = None
    schedules: tuple[str, ...] | None = None
    time_zone: str | None = None
    suspend: bool | None = None
    suspend_until: str | None = None
    suspend_reason: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    """The fields of a Schedule's status, and of a set's, that the pages show."""

    observed_generation: int = -1
    conditions: tuple[Shown, ...] | None = None
    next_schedule_time: str | None = None
    upcoming_times: tuple[str, ...] | None = None
    last_schedule_time: str | None = None
    recent_runs: tuple[Row, ...] | None = None
    target: str | None = None
    members: int | None = None
    in_flight: int | None = None
    next_due_time: str | None = None
    lag_seconds: float | None = None


_spec_decoder = msgspec.json.Decoder(Spec)
_status_decoder = msgspec.json.Decoder(_Status)


def schedule(item: objects.Schedule, now_us: int) -> ScheduleRow:
    """Return the line of a Schedule in the list."""
    spec, status = _decoded(item) or (Spec(), None)
    if status is None:
        return ScheduleRow(**_standing(item, _Status(), _UNREADABLE))
    newest = next(iter(status.recent_runs or ()), None)
    found = diagnosis.of(
        status.conditions or (),
        is_current=status.observed_generation >= item.metadata.generation,
        is_suspended=objects.is_suspended(spec.suspend, spec.suspend_until, now_us),
    )
    return ScheduleRow(
        **_standing(item, status, found),
        schedule=spec.schedule or ", ".join(spec.schedules or ()),
        time_zone=spec.time_zone or "",
        next=status.next_schedule_time or "",
        result=newest.outcome if newest else "",
    )


def _standing(item: objects.Schedule, status: _Status, found: Diagnosis) -> dict[str, Any]:
    """Return the fields that the lines of Schedules and sets have in common."""
    about = found.about
    return {
        "namespace": item.metadata.namespace,
        "name": item.metadata.name,
        "last": status.last_schedule_time or "",
        "target": status.target or "",
        "health": found.health.value,
        "reason": about.reason if about else "",
        "message": about.message[:200] if about else "",
    }


def _decoded(item: objects.Schedule) -> tuple[Spec, _Status] | None:
    """Decode spec and status; None if another version has written fields of another type."""
    try:
        return _spec_decoder.decode(item.spec), _status_decoder.decode(item.status)
    except (msgspec.DecodeError, RecursionError):
        return None


# -- one Schedule --------------------------------------------------------------------------------


def detail(item: objects.Schedule, now_us: int, may: Rights) -> ScheduleDetail:
    """Return the content of a Schedule's page."""
    spec, status = _decoded(item) or (Spec(), _Status())
    conditions = _shown(status.conditions or ())
    listed = sorted(status.recent_runs or (), key=_newest, reverse=True)
    reasons = {each.reason for each in conditions} | {each.reason for each in listed}
    namespace, name = item.metadata.namespace, item.metadata.name
    advice = {
        reason: diagnosis.steps_for(reason, namespace=namespace, name=name)
        for reason in sorted(reasons & diagnosis.ADVICE.keys())
    }
    row = msgspec.structs.asdict(schedule(item, now_us))
    return ScheduleDetail(
        **row | {"time_zone": spec.time_zone or "Etc/UTC"},
        conditions=tuple(conditions),
        upcoming=status.upcoming_times or (),
        slots=tuple(listed),
        advice={reason: steps for reason, steps in advice.items() if steps != _NOTHING},
        spec=item.spec,
        may=may,
    )


def _newest(slot: Row) -> str:
    """Return a sort key, greater = newer; a run by hand of an old slot counts by its start."""
    return max(slot.start_time, slot.scheduled_time)[:_WHOLE_SECONDS]


def _shown(conditions: Iterable[Shown]) -> list[Shown]:
    """Return Ready and the conditions that are True, without those that repeat another."""
    true = [
        each for each in conditions if each.status == "True" or each.type == ConditionType.READY
    ]
    troubles = diagnosis.troubles(true)
    is_repeated = bool(troubles) and troubles[0].type != ConditionType.FAILING
    kept = [each for each in true if not (is_repeated and each.type == ConditionType.FAILING)]
    messages = [each.message for each in kept]
    return [each for place, each in enumerate(kept) if not _repeats_another(place, messages)]


def _repeats_another(place: int, messages: list[str]) -> bool:
    """Whether a condition's message equals an earlier one, or contains another's."""
    own = messages[place]
    others = [each for at, each in enumerate(messages) if each != own or at < place]
    return any(each and each in own for each in others)


# -- sets ----------------------------------------------------------------------------------------


def schedule_set(item: objects.ScheduleSet) -> SetRow:
    """Return the line of a ScheduleSet in the list."""
    _, status = _decoded(item) or (Spec(), None)
    if status is None:
        return SetRow(**_standing(item, _Status(), _UNREADABLE))
    conditions = {each.type: each for each in status.conditions or () if each.status == "True"}
    if worst := [type_ for type_ in _SET_HEALTH if type_ in conditions]:
        found = Diagnosis(health=_SET_HEALTH[worst[0]], about=conditions[worst[0]])
    elif status.observed_generation < 0:
        found = Diagnosis(health=ScheduleHealth.WAITING, about=diagnosis.UNSEEN)
    else:
        found = Diagnosis(health=ScheduleHealth.OK)
    return SetRow(
        **_standing(item, status, found),
        members=status.members,
        in_flight=status.in_flight,
        next=status.next_due_time or "",
        lag_seconds=status.lag_seconds,
    )
