"""How a Schedule stands, in one word and the condition behind it: the one diagnosis of all places.

``troubles`` puts what keeps runs from succeeding into order; the operator publishes the worst as
the condition ``Failing``. ``of`` reads the conditions of a status: the list, ``why``, ``doctor``
and the dashboard show what it returns. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from duepoint.schedules import advice
from duepoint.schedules.conditions import ConditionType, Reason


class ScheduleHealth(enum.StrEnum):
    """How a Schedule stands."""

    #: The spec is refused, or waits for something that does not come by itself.
    PROBLEM = "problem"
    #: Its runs fail, are late or do not happen.
    FAILING = "failing"
    #: The newest edit is not in force yet.
    WAITING = "waiting"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    OK = "ok"


#: In trouble: somebody should look.
TROUBLED = frozenset({ScheduleHealth.PROBLEM, ScheduleHealth.FAILING, ScheduleHealth.WAITING})

#: Conditions that are a trouble of runs, the worst first: what stops them for good before what may
#: pass. ``Failing`` stands for the worst of them where there is one, else for runs that fail.
_TROUBLES = (
    ConditionType.ENDPOINT_GONE,
    ConditionType.PODS_REFUSED,
    ConditionType.NAME_CONFLICT,
    ConditionType.CIRCUIT_OPEN,
    ConditionType.OVERDUE,
    ConditionType.MISSED,
    ConditionType.FAILING,
)
#: A generation that waits for these is in force soon, without anybody's help.
_PASSING = frozenset({Reason.SECRETS_PENDING, Reason.QUEUE_UNAVAILABLE, Reason.API_UNAVAILABLE})


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a published status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Condition(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...


ConditionT = TypeVar("ConditionT", bound=_Condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """How a Schedule stands.

    Attributes:
        about: the condition that says why; None where nothing has to be said.
    """

    health: ScheduleHealth
    about: Shown | None = None

    @property
    def is_troubled(self) -> bool:
        return self.health in TROUBLED


UNSEEN = Shown(reason=advice.NOT_OBSERVED, message="no operator has looked at it yet")


def troubles(conditions: Iterable[ConditionT]) -> list[ConditionT]:
    """Return the conditions that are a trouble of runs and True, the worst first."""
    by_type = {condition.type: condition for condition in conditions if condition.status == "True"}
    found = [by_type[type_] for type_ in _TROUBLES if type_ in by_type]
    return found[:-1] if found[1:] and found[-1].type == ConditionType.FAILING else found


def of(conditions: Iterable[Shown], *, is_current: bool, is_suspended: bool) -> Diagnosis:
    """The diagnosis of a Schedule.

    Args:
        conditions: of its status.
        is_current: an operator has looked at its newest generation.
        is_suspended: no slot runs until it resumes.
    """
    by_type = {one.type: one for one in conditions}
    held = {type_: one for type_, one in by_type.items() if one.status == "True"}
    ready = by_type.get(ConditionType.READY)
    if (stalled := held.get(ConditionType.STALLED)) is not None:
        return Diagnosis(health=ScheduleHealth.PROBLEM, about=stalled)
    if (waits := held.get(ConditionType.RECONCILING)) is not None:
        health = ScheduleHealth.WAITING if waits.reason in _PASSING else ScheduleHealth.PROBLEM
        return Diagnosis(health=health, about=waits)
    if not is_current or ready is None:
        return Diagnosis(health=ScheduleHealth.WAITING, about=UNSEEN)
    if is_suspended:
        return Diagnosis(health=ScheduleHealth.SUSPENDED)
    if found := troubles(held.values()):
        return Diagnosis(health=ScheduleHealth.FAILING, about=found[0])
    is_over = ready.reason == Reason.COMPLETED
    return Diagnosis(health=ScheduleHealth.COMPLETED if is_over else ScheduleHealth.OK)
