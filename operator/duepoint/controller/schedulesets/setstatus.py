"""The status of a ScheduleSet: what is said of a spec, and the whole, rendered and read back.

A ``SetReport`` is the answer to a spec: accepted, refused, or waiting for something that may pass.
Texts are stable from one look to the next, so that an unchanged object is not written again. The
spread, what was lost and how far a deletion has come survive a change of leaders through the status
alone, and so do counts of how members ended where Redis has lost them; the rest is found anew.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from duepoint.controller.observed import Observed
from duepoint.delayqueue.serverhealth import ServerDurability
from duepoint.kube import schedules, times
from duepoint.kube.events import Event, ObjectReference
from duepoint.runs.run import NONE_ENDED, SetTally
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.sets import setspec
from duepoint.schedules.sets.setrecord import SetRecord
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
        Reason.FORBIDDEN, f"the API server gave no verdict on spec.jobTemplate: {message}"
    )
    return _accepted(spec, listed, spread=spread, is_settled=False)


def rows_pending(spec: SetSpec, *, spread: int) -> SetReport:
    """The queue holds this generation, and its members are not equal to the rows yet."""
    listed = conditions.reconciling(Reason.PENDING, "the members follow spec.rows")
    return _accepted(spec, listed, spread=spread)


def _accepted(
    spec: SetSpec, listed: tuple[Condition, ...], *, spread: int, is_settled: bool = True
) -> SetReport:
    return SetReport(
        generation=spec.generation,
        conditions=listed,
        is_settled=is_settled,
        target=spec.action.target.text,
        spread=spread,
    )


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
        Reason.PENDING,
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
                type=ConditionType.READY, status="False", reason=Reason.DELETED, message=message
            ),
            _true(ConditionType.DELETING, Reason.DELETED, message),
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


@dataclass(slots=True, kw_only=True)
class FollowedSet:
    """One set.

    Attributes:
        seen: the newest state of the object that was read, without its texts: with them, two
            hundred sets of one author would fill the operator's memory.
        published: the status that the API server has, as far as is known.
        report: the answer to the newest generation that was applied; None = none was yet.
        record: what the queue holds.
        spec: what is kept of the accepted spec; None where it is refused or was not looked at.
        members: when they were counted last, in this term or before; None = never.
        tally: how slots of its members have ended, the newest reading of counters that never fall.
        counted_since_us: when counting that began; 0 = it has not.
        spread, accepted: as the newest answer has them; from the status at first.
        rows_of: generation and version of the rows that the set was made equal to in this term.
        upheavals: how often servers had been upset when members were counted last.
        written_at: when the status was written last, on the monotonic clock.
        is_unread: the object is to be read, as it has changed or the queue may lack it.
    """

    seen: Observed
    published: dict[str, Any] = field(default_factory=dict)
    report: SetReport | None = None
    record: SetRecord | None = None
    spec: setspec.SetSpec | None = None
    numbers: SetNumbers | None = None
    members: int | None = None
    tally: SetTally = NONE_ENDED
    counted_since_us: int = 0
    lost: Lost | None = None
    deletion: DeletionProgress | None = None
    rows: RowsProgress | None = None
    spread: int | None = None
    accepted: int = -1
    rows_of: tuple[int, bytes] | None = None
    upheavals: int | None = None
    written_at: float | None = None
    is_unread: bool = False

    @property
    def follows_rows(self) -> bool:
        """Whether the set was made equal to the rows of this generation in this term."""
        return self.rows_of is not None and self.rows_of[0] == self.seen.generation

    def adopt_published(self, status: bytes) -> None:
        """A newer writer may have published this status."""
        self.published = _decoded(status)
        self.tally = self.tally.newest(_tally(_read(self.published)))


def rendered(
    state: FollowedSet, *, durability: ServerDurability | None, managed_by: str, now_us: int
) -> dict[str, Any]:
    """The whole status; what was published before is kept where nothing else is known."""
    report, numbers, previous = state.report, state.numbers, state.published
    assert report is not None  # noqa: S101 - a set is published once it was looked at
    fields: dict[str, Any] = {
        "observedGeneration": report.generation,
        "conditions": conditions.rendered(
            _conditions(state, report),
            generation=report.generation,
            now=times.time_text(now_us),
            previous=previous.get("conditions") or (),
        ),
        "target": report.target or previous.get("target"),
        "managedBy": managed_by,
        "spread": previous.get("spread") if report.spread is None else report.spread,
        "runs": _runs(state.tally, state.counted_since_us),
        "lastScheduleTime": _time(state.tally.newest_slot_us),
    }
    if numbers is not None:
        fields |= _numbers(numbers)
    else:
        fields |= {name: previous.get(name) for name in _NUMBER_FIELDS}
    if durability is not None:
        fields["durability"] = _durability(durability)
    else:
        fields["durability"] = previous.get("durability")
    if state.lost is not None:
        lost = state.lost
        fields["lost"] = {
            "time": times.time_text(lost.at_us),
            "members": lost.members,
            "generation": lost.generation,
        }
    if state.deletion is not None:
        fields["deletion"] = _deletion(state.deletion)
    if state.rows is not None:
        rows = state.rows
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


def _conditions(state: FollowedSet, report: SetReport) -> tuple[Condition, ...]:
    listed = list(report.conditions)
    if state.rows is not None and state.rows.condition is not None:
        listed.append(state.rows.condition)
    if state.lost is not None:
        left = 0 if state.numbers is None else state.numbers.members
        when = times.time_text(state.lost.at_us)
        listed.append(data_lost(state.lost.members, left, when))
    return tuple(listed)


def _time(instant_us: int) -> str | None:
    return times.time_text(instant_us) if instant_us else None


# -- Events --------------------------------------------------------------------------------------

_OF_STALLED = frozenset({Reason.INVALID_SPEC, Reason.INVALID_JOB_TEMPLATE})


def events_of_report(state: FollowedSet, report: SetReport) -> Iterator[Event]:
    """What was found in a spec, where the status does not say so already."""
    shown = {
        (str(each.get("type")), str(each.get("message")))
        for each in state.published.get("conditions") or ()
    }
    for condition in report.conditions:
        if condition.type is ConditionType.STALLED:
            reason = condition.reason if condition.reason in _OF_STALLED else Reason.INVALID_SPEC
            if (condition.type.value, condition.message) not in shown:
                yield _event(state, reason, condition.message)


def event_of_loss(state: FollowedSet) -> Event:
    """Redis lost members."""
    before = 0 if state.lost is None else state.lost.members
    note = f"Redis lost members: there were {before} when they were counted last"
    return _event(state, Reason.MEMBERS_LOST, note)


def event_of_rows(state: FollowedSet, condition: Condition) -> Event:
    """Rows are wrong, or cannot be used."""
    return _event(state, condition.reason, condition.message)


def _event(state: FollowedSet, reason: Reason, note: str) -> Event:
    seen = state.seen
    return Event(
        regarding=ObjectReference(
            namespace=seen.namespace, name=seen.name, uid=seen.uid, kind=schedules.SET_KIND
        ),
        reason=reason,
        action="Reconcile",
        note=note,
        warning=True,
    )


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
    conditions: tuple[_Condition, ...] = ()
    spread: int | None = None
    members: int | None = None
    last_schedule_time: str = ""
    runs: _Runs | None = None
    lost: _Lost | None = None
    deletion: _Deletion | None = None


def begun(seen: Observed) -> FollowedSet:
    """The state of a set as a former leader published it."""
    published = _decoded(seen.status)
    status = _read(published)
    lost, deletion = status.lost, status.deletion
    return FollowedSet(
        seen=seen.without_texts(),
        published=published,
        members=status.members,
        tally=_tally(status),
        counted_since_us=_instant(status.runs.since) if status.runs else 0,
        lost=None
        if lost is None
        else Lost(members=lost.members, at_us=_instant(lost.time), generation=lost.generation),
        deletion=None
        if deletion is None
        else DeletionProgress(
            began_us=_instant(deletion.start_time), removed=max(deletion.removed, 0)
        ),
        spread=status.spread,
        accepted=max(
            (
                each.observed_generation
                for each in status.conditions
                if each.type == ConditionType.READY and each.status == "True"
            ),
            default=-1,
        ),
    )


def _decoded(status: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(status, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _read(status: Mapping[str, Any]) -> _Status:
    """A published status; empty where it is not ours."""
    try:
        return msgspec.convert(status, _Status)
    except msgspec.ValidationError:
        return _Status()


def _tally(status: _Status) -> SetTally:
    runs = status.runs or _Runs()
    return SetTally(
        succeeded=runs.succeeded,
        failed=runs.failed,
        missed=runs.missed,
        skipped=runs.skipped,
        started=runs.started,
        newest_slot_us=_instant(status.last_schedule_time),
    )


def _instant(text: str) -> int:
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0
