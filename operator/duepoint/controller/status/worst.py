"""What the message of Ready says of a Schedule that is armed or completed: the worst that is true.

Ready tells whether the newest generation is in the queue, and a receiver that refuses every
delivery does not change that. Who looks at one line sees Ready's message, so it names the trouble
first, the one that stops most before the one that may pass. Once nothing is wrong it says how the
Schedule stands. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from duepoint.controller.status import statustext
from duepoint.runs import summary as summaries
from duepoint.schedules.conditions import Condition, ConditionType, Reason

#: The worst one first.
_TROUBLES = (
    ConditionType.ENDPOINT_GONE,
    ConditionType.PODS_REFUSED,
    ConditionType.NAME_CONFLICT,
    ConditionType.CIRCUIT_OPEN,
    ConditionType.OVERDUE,
)


def told(
    condition: Condition, standing: str, derived: Iterable[Condition], runs: summaries.Summary
) -> Condition:
    """Ready with its message; any other condition, and a Ready that says why itself, as it is.

    Args:
        standing: how an armed or completed Schedule stands, where nothing is wrong.
        derived: the conditions that follow from its runs and slots.
    """
    if condition.type is not ConditionType.READY or condition.status != "True":
        return condition
    if condition.reason not in (Reason.ARMED, Reason.COMPLETED):
        return condition
    wrong = _trouble(derived) or _newest_run(runs)
    if condition.reason is Reason.COMPLETED:
        wrong = f"{standing}; {wrong}" if wrong else ""
    return dataclasses.replace(condition, message=wrong or standing)


def _trouble(derived: Iterable[Condition]) -> str:
    found = {one.type: one for one in derived if one.status == "True"}
    for type_ in _TROUBLES:
        if (one := found.get(type_)) is not None:
            why = "" if one.reason.value == one.type.value else f" ({one.reason})"
            return f"{one.type}{why}: {one.message}"
    return ""


def _newest_run(runs: summaries.Summary) -> str:
    last = runs.last_run
    if last is not None and statustext.is_retrying(last):
        slot = statustext.instant(last.slot_us)
        return f"the run of {slot} is tried again: {_why(last.reason, last.message)}"
    verdict = runs.verdict
    if verdict is not None and not verdict.succeeded:
        return f"the last run failed: {_why(verdict.reason, verdict.message)}"
    return ""


def _why(reason: str, message: str) -> str:
    return f"{reason}: {message}" if message else reason
