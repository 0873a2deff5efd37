"""What is said of one generation of a ScheduleSet, in the words of a Schedule's conditions.

A ``SetReport`` is the answer to a spec: accepted, refused, or waiting for something that may pass.
Texts are stable from one look to the next, so that an unchanged object is not written again. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import errors
from duepoint.schedules import actions, conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.sets.setspec import SetSpec

#: Conditions name so many wrong rows.
_ROWS_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport:
    """One generation, looked at.

    Attributes:
        is_settled: accepted or refused, so that nothing has to be tried again.
        target: the target in one line; empty where the spec does not say.
        spread: as the queue has it; None where it holds nothing of the set.
    """

    generation: int
    conditions: tuple[Condition, ...]
    is_settled: bool
    target: str = ""
    spread: int | None = None


def ready(spec: SetSpec, *, spread: int) -> SetReport:
    """The queue holds this generation."""
    listed = conditions.ready(*_standing(spec))
    if spec.suspend:
        reason, message = _standing(spec)
        listed += (_true(ConditionType.SUSPENDED, reason, message),)
    return _accepted(spec, listed, spread=spread)


def _standing(spec: SetSpec) -> tuple[Reason, str]:
    if not spec.suspend:
        return Reason.ARMED, "the set takes members, and they fire"
    held = "spec.suspend is true"
    why = f"{held}: {spec.suspend_reason}" if spec.suspend_reason else held
    return Reason.SUSPENDED, why


def dry_run_pending(spec: SetSpec, message: str, *, spread: int) -> SetReport:
    """The queue holds this generation, and it is unknown yet whether its Jobs can be created."""
    listed = conditions.reconciling(
        Reason.DRY_RUN_PENDING, f"the API server gave no verdict on spec.jobTemplate: {message}"
    )
    return _accepted(spec, listed, spread=spread, is_settled=False)


def rows_pending(spec: SetSpec, *, spread: int) -> SetReport:
    """The queue holds this generation, and its members are not equal to the rows yet."""
    listed = conditions.reconciling(Reason.ROWS_PENDING, "the members follow spec.rows")
    return _accepted(spec, listed, spread=spread)


def _accepted(
    spec: SetSpec, listed: tuple[Condition, ...], *, spread: int, is_settled: bool = True
) -> SetReport:
    return SetReport(
        generation=spec.generation,
        conditions=listed,
        is_settled=is_settled,
        target=actions.describe(spec.action),
        spread=spread,
    )


def invalid(generation: int, error: errors.InvalidSpec, *, spread: int) -> SetReport:
    """Only an edit can mend the spec; its members are held."""
    reason = Reason(error.errors[0].reason) if error.errors else Reason.INVALID_SCHEDULE
    return stalled(generation, reason, str(error), spread=spread)


def stalled(generation: int, reason: Reason, message: str, *, spread: int) -> SetReport:
    """This generation is refused, for a reason that only an edit can mend."""
    return SetReport(
        generation=generation,
        conditions=conditions.stalled(reason, message),
        is_settled=True,
        spread=spread,
    )


def waiting(generation: int, reason: Reason, message: str) -> SetReport:
    """This generation is not in the queue yet, for a reason that may pass."""
    return SetReport(
        generation=generation, conditions=conditions.reconciling(reason, message), is_settled=False
    )


def former_set(generation: int) -> SetReport:
    """A set of the same name was deleted without its members."""
    return waiting(
        generation,
        Reason.FORMER_SET,
        "members of a former ScheduleSet of this name are removed first",
    )


def deleting(generation: int, left: int | None) -> SetReport:
    """The object is on its way, and goes once its members are gone."""
    count = "members are being removed" if left is None else f"{left} members are left"
    message = f"the set is being deleted: {count}"
    return SetReport(
        generation=generation,
        conditions=(
            Condition(
                type=ConditionType.READY, status="False", reason=Reason.DELETING, message=message
            ),
            _true(ConditionType.DELETING, Reason.DELETING, message),
        ),
        is_settled=True,
    )


def data_lost(members: int, left: int, when: str) -> Condition:
    """Redis lost members; nothing in Duepoint can bring them back."""
    return _true(
        ConditionType.DATA_LOST,
        Reason.MEMBERS_LOST,
        f"Redis lost members: there were {members}, noticed at {when}, and {left} are there; write"
        " the others again. An edit of the set ends this condition",
    )


def rows_invalid(wrong: tuple[str, ...], count: int) -> Condition:
    """Rows are wrong and left out."""
    named = "; ".join(wrong[:_ROWS_NAMED])
    more = f"; and {count - _ROWS_NAMED} more" if count > _ROWS_NAMED else ""
    rows = "1 row is" if count == 1 else f"{count} rows are"
    message = f"{rows} wrong and left out: {named}{more}"
    return _true(ConditionType.ROWS_INVALID, Reason.ROWS_INVALID, message)


def rows_unusable(reason: Reason, message: str) -> Condition:
    """None of the rows is used, and the members stay as they are."""
    return _true(ConditionType.ROWS_INVALID, reason, message)


def _true(type_: ConditionType, reason: Reason, message: str) -> Condition:
    return Condition(type=type_, status="True", reason=reason, message=message)
