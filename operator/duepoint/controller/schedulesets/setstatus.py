"""The status of a ScheduleSet: rendered from what is known of it, and read back by the next leader.

The spread, what was lost and how far a deletion has come survive a change of leaders through the
status alone, and so do counts of how members ended where Redis has lost them; the rest is found
anew. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint.controller.schedulesets import setreports
from duepoint.controller.schedulesets.setreports import SetReport
from duepoint.delayqueue.serverhealth import ServerDurability
from duepoint.kube import times
from duepoint.runs.run import NONE_ENDED, SetTally
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType

#: A member that is this late is being claimed: nothing lags.
_NO_LAG_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNumbers:
    """What the queue held of a set when it was counted."""

    members: int
    in_flight: int = 0
    next_due_us: int | None = None
    oldest_overdue_us: int | None = None
    counted_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Members that Redis lost, as far as is known.

    Attributes:
        members: how many there were when they were counted last.
        generation: of the set when it was noticed.
    """

    members: int
    at_us: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionProgress:
    """How far a deletion has come; ``left`` is None until the queue was asked."""

    began_us: int
    removed: int = 0
    left: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsProgress:
    """How far a set is equal to its rows.

    Attributes:
        condition: what is wrong with rows; None = nothing.
    """

    desired: int = 0
    applied: int = 0
    failed: int = 0
    source: str = ""
    condition: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFacts:
    """Everything that a status is made from."""

    report: SetReport
    tally: SetTally
    counted_since_us: int = 0
    numbers: SetNumbers | None = None
    durability: ServerDurability | None = None
    lost: Lost | None = None
    deletion: DeletionProgress | None = None
    rows: RowsProgress | None = None
    managed_by: str = ""


def rendered(facts: SetFacts, *, now_us: int, previous: Mapping[str, Any]) -> dict[str, Any]:
    """The whole status.

    Args:
        now_us: time of this write.
        previous: the published status; what it says is kept where nothing else is known.
    """
    report, numbers = facts.report, facts.numbers
    fields: dict[str, Any] = {
        "observedGeneration": report.generation,
        "conditions": conditions.rendered(
            _conditions(facts),
            generation=report.generation,
            now=times.time_text(now_us),
            previous=previous.get("conditions") or (),
        ),
        "target": report.target or previous.get("target"),
        "managedBy": facts.managed_by,
        "spread": previous.get("spread") if report.spread is None else report.spread,
        "runs": _runs(facts.tally, facts.counted_since_us),
        "lastScheduleTime": _time(facts.tally.newest_slot_us),
    }
    if numbers is not None:
        fields |= _numbers(numbers)
    else:
        fields |= {name: previous.get(name) for name in _NUMBER_FIELDS}
    if facts.durability is not None:
        fields["durability"] = _durability(facts.durability)
    else:
        fields["durability"] = previous.get("durability")
    if facts.lost is not None:
        lost = facts.lost
        fields["lost"] = {
            "time": times.time_text(lost.at_us),
            "members": lost.members,
            "generation": lost.generation,
        }
    if facts.deletion is not None:
        fields["deletion"] = _deletion(facts.deletion)
    if facts.rows is not None:
        rows = facts.rows
        fields["rows"] = {
            "desired": rows.desired,
            "applied": rows.applied,
            "failed": rows.failed,
            "source": rows.source,
        }
    return {name: value for name, value in fields.items() if value not in (None, "")}


_NUMBER_FIELDS = ("members", "inFlight", "nextDueTime", "lagSeconds")


def _numbers(numbers: SetNumbers) -> dict[str, Any]:
    overdue_us = 0
    if numbers.oldest_overdue_us is not None:
        overdue_us = numbers.counted_us - numbers.oldest_overdue_us
    return {
        "members": numbers.members,
        "inFlight": numbers.in_flight,
        "nextDueTime": None if numbers.next_due_us is None else _time(numbers.next_due_us),
        "lagSeconds": 0 if overdue_us < _NO_LAG_US else round(overdue_us / 1_000_000, 1),
    }


def _durability(found: ServerDurability) -> dict[str, Any]:
    return {
        "persistence": found.persistence,
        "replicas": found.replicas,
        "lossWindow": found.loss_window,
    }


def _deletion(progress: DeletionProgress) -> dict[str, Any]:
    fields = {"startTime": times.time_text(progress.began_us), "removed": progress.removed}
    return fields if progress.left is None else {**fields, "left": progress.left}


def _runs(tally: SetTally, since_us: int) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "succeeded": tally.succeeded,
        "failed": tally.failed,
        "missed": tally.missed,
        "skipped": tally.skipped,
    }
    if tally.started:
        counts["started"] = tally.started
    if since_us:
        counts["since"] = times.time_text(since_us)
    return counts


def _conditions(facts: SetFacts) -> tuple[Condition, ...]:
    listed = list(facts.report.conditions)
    if facts.rows is not None and facts.rows.condition is not None:
        listed.append(facts.rows.condition)
    if facts.lost is not None:
        left = 0 if facts.numbers is None else facts.numbers.members
        when = times.time_text(facts.lost.at_us)
        listed.append(setreports.data_lost(facts.lost.members, left, when))
    return tuple(listed)


def _time(instant_us: int) -> str | None:
    return times.time_text(instant_us) if instant_us else None


# -- read back -----------------------------------------------------------------------------------


class _Runs(msgspec.Struct, frozen=True, rename="camel"):
    succeeded: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    started: int = 0
    since: str = ""


class _Lost(msgspec.Struct, frozen=True):
    time: str = ""
    members: int = 0
    generation: int = 0


class _Deletion(msgspec.Struct, frozen=True, rename="camel"):
    start_time: str = ""
    removed: int = 0


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    observed_generation: int = -1


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = -1
    conditions: tuple[_Condition, ...] = ()
    spread: int | None = None
    members: int | None = None
    last_schedule_time: str = ""
    runs: _Runs | None = None
    lost: _Lost | None = None
    deletion: _Deletion | None = None


class PublishedSetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a former leader published, as far as it is needed to go on.

    Attributes:
        accepted_generation: of which Ready is True; -1 = of none.
        members: when they were counted last; None = never.
        counted_since_us: when counting how slots end began; 0 = it has not.
    """

    observed_generation: int = -1
    accepted_generation: int = -1
    spread: int | None = None
    members: int | None = None
    tally: SetTally = NONE_ENDED
    counted_since_us: int = 0
    lost: Lost | None = None
    deletion: DeletionProgress | None = None


def read(status: Mapping[str, Any]) -> PublishedSetStatus:
    """A published status; empty where it is not ours."""
    try:
        found = msgspec.convert(status, _Status)
    except msgspec.ValidationError:
        return PublishedSetStatus()
    runs = found.runs or _Runs()
    lost, deletion = found.lost, found.deletion
    return PublishedSetStatus(
        observed_generation=found.observed_generation,
        accepted_generation=max(
            (
                each.observed_generation
                for each in found.conditions
                if each.type == ConditionType.READY and each.status == "True"
            ),
            default=-1,
        ),
        spread=found.spread,
        members=found.members,
        tally=SetTally(
            succeeded=runs.succeeded,
            failed=runs.failed,
            missed=runs.missed,
            skipped=runs.skipped,
            started=runs.started,
            newest_slot_us=_instant(found.last_schedule_time),
        ),
        counted_since_us=_instant(runs.since),
        lost=None
        if lost is None
        else Lost(members=lost.members, at_us=_instant(lost.time), generation=lost.generation),
        deletion=None
        if deletion is None
        else DeletionProgress(
            began_us=_instant(deletion.start_time), removed=max(deletion.removed, 0)
        ),
    )


def _instant(text: str) -> int:
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0
