"""The state of a ScheduleSet and its status: parsed, updated and rendered.

``SetStatus`` has the fields of ``.status``. A leader starts from the status that the former one
published and updates it, so a field that it does not determine again keeps its value: the spread,
lost members, the progress of a deletion, and the run counts if Redis has lost them. Texts do not
change by themselves, so that the status of an unchanged object is not written again. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from duepoint.controller.observed import Observed
from duepoint.controller.status import events
from duepoint.kube import schedules, times
from duepoint.kube.events import Event, ObjectReference
from duepoint.runs.run import NONE_ENDED, SetTally
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.sets import setspec
from duepoint.schedules.sets.setrecord import SetRecord

#: The most invalid rows that a condition names.
_ROWS_NAMED = 5


class Runs(msgspec.Struct, frozen=True):
    """How slots of members have ended since the counting began."""

    succeeded: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    started: int | msgspec.UnsetType = msgspec.UNSET
    since: str | msgspec.UnsetType = msgspec.UNSET


class Durability(msgspec.Struct, frozen=True, rename="camel"):
    """The durability that the servers promise."""

    persistence: str
    replicas: int
    loss_window: str


class Lost(msgspec.Struct, frozen=True):
    """Members that Redis lost: how many there were, and the generation when it was noticed."""

    time: str = ""
    members: int = 0
    generation: int = 0


class Deletion(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of a deletion."""

    start_time: str
    removed: int = 0
    left: int = 0


class Rows(msgspec.Struct, frozen=True):
    """The progress in making a set equal to its rows."""

    desired: int = 0
    applied: int = 0
    failed: int = 0
    source: str = ""


class SetStatus(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """``.status`` of a ScheduleSet; fields with their default value are left out."""

    observed_generation: int = -1
    conditions: list[dict[str, Any]] = []
    target: str = ""
    managed_by: str = ""
    spread: int | None = None
    members: int | None = None
    in_flight: int | None = None
    next_due_time: str | None = None
    lag_seconds: float | None = None
    runs: Runs | None = None
    last_schedule_time: str = ""
    durability: Durability | None = None
    lost: Lost | None = None
    deletion: Deletion | None = None
    rows: Rows | None = None


@dataclass(slots=True, kw_only=True)
class FollowedSet:
    """The state of one set.

    Attributes:
        seen: the newest version of the object that was read, without spec and status: with them,
            two hundred sets of one author would fill the operator's memory.
        status: the current status, as far as we know.
        published: the status in the API server, as far as we know.
        answer: the conditions of the newest generation; empty = none was processed in this term.
        accepted: the newest generation that was accepted; -1 = none.
        rows_wrong: what is wrong with rows; empty = all are valid.
        record: the record in the queue.
        spec: the accepted spec without large parts; None if it is refused or was not read yet.
        tally: how slots of its members have ended; the newest reading of counters that never fall.
        rows_of: generation and version of the rows that the set was made equal to in this term.
        upheavals: the number of server upheavals when members were last counted.
        is_unread: whether to read the object, because it changed or the queue may lack its record.
    """

    seen: Observed
    status: SetStatus
    published: dict[str, Any] = field(default_factory=dict)
    answer: tuple[Condition, ...] = ()
    accepted: int = -1
    rows_wrong: str = ""
    record: SetRecord | None = None
    spec: setspec.SetSpec | None = None
    tally: SetTally = NONE_ENDED
    rows_of: tuple[int, bytes] | None = None
    upheavals: int | None = None
    is_unread: bool = False

    @property
    def follows_rows(self) -> bool:
        """Whether the set was made equal to the rows of this generation in this term."""
        return self.rows_of is not None and self.rows_of[0] == self.seen.generation


def state_of(seen: Observed, now_us: int) -> FollowedSet:
    """Return the state of a set, continued from the status that a former leader published."""
    published, status = _read(seen.status)
    if status.runs is None or not status.runs.since:
        status.runs = Runs(since=times.time_text(now_us))
    accepted = [
        int(each.get("observedGeneration") or -1)
        for each in status.conditions
        if each.get("type") == ConditionType.READY and each.get("status") == "True"
    ]
    return FollowedSet(
        seen=seen.without_texts(),
        status=status,
        published=published,
        tally=_tally(status),
        accepted=max(accepted, default=-1),
    )


def count_removed(state: FollowedSet, count: int, left: int, now_us: int) -> None:
    """Count members that were removed because the set is being deleted."""
    status = state.status
    former = status.deletion or Deletion(start_time=times.time_text(now_us))
    status.deletion = msgspec.structs.replace(former, removed=former.removed + count, left=left)
    status.members, status.next_due_time = left, None
    status.in_flight = status.lag_seconds = 0
    status.rows, state.rows_wrong = None, ""


def rendered(state: FollowedSet, *, managed_by: str, now_us: int) -> dict[str, Any]:
    """Return the whole status."""
    status, tally = state.status, state.tally
    listed = list(state.answer)
    if state.rows_wrong:
        rows = conditions.true(ConditionType.ROWS_INVALID, Reason.ROWS_INVALID, state.rows_wrong)
        listed.append(rows)
    if status.lost is not None:
        listed.append(data_lost(status.lost, status.members or 0))
    status.observed_generation = state.seen.generation
    status.managed_by = managed_by
    status.conditions = conditions.rendered(
        listed,
        generation=state.seen.generation,
        now=times.time_text(now_us),
        previous=state.published.get("conditions") or (),
    )
    status.runs = Runs(
        succeeded=tally.succeeded,
        failed=tally.failed,
        missed=tally.missed,
        skipped=tally.skipped,
        started=tally.started or msgspec.UNSET,
        since=msgspec.UNSET if status.runs is None else status.runs.since,
    )
    if tally.newest_slot_us:
        status.last_schedule_time = times.time_text(tally.newest_slot_us)
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return fields


def _read(text: bytes) -> tuple[dict[str, Any], SetStatus]:
    """Return a published status, raw and parsed; empty if it is not ours."""
    try:
        published = msgspec.json.decode(text, type=dict[str, Any])
        return published, msgspec.convert(published, SetStatus)
    except (msgspec.DecodeError, RecursionError):
        return {}, SetStatus()


def _tally(status: SetStatus) -> SetTally:
    runs = status.runs or Runs()
    slot = status.last_schedule_time
    return SetTally(
        succeeded=runs.succeeded,
        failed=runs.failed,
        missed=runs.missed,
        skipped=runs.skipped,
        started=runs.started or 0,
        newest_slot_us=times.parse_us(slot) if slot else 0,
    )


# -- conditions ------------------------------------------------------------------------------------


def ready(spec: setspec.SetSpec) -> tuple[Condition, ...]:
    """Return the conditions of a set whose generation is stored in the queue."""
    if not spec.suspend:
        return conditions.ready(Reason.ARMED, "the set takes members, and they fire")
    held = "spec.suspend is true"
    why = f"{held}: {spec.suspend_reason}" if spec.suspend_reason else held
    suspended = conditions.true(ConditionType.SUSPENDED, Reason.SUSPENDED, why)
    return (*conditions.ready(Reason.SUSPENDED, why), suspended)


def deleting(left: int) -> tuple[Condition, ...]:
    """Return the conditions of a set that is being deleted, with its members left."""
    message = f"the set is being deleted: {left} members are left"
    return (
        Condition(type=ConditionType.READY, status="False", reason=Reason.DELETED, message=message),
        conditions.true(ConditionType.DELETING, Reason.DELETED, message),
    )


def data_lost(lost: Lost, left: int) -> Condition:
    """Return the condition that Redis lost members; Duepoint cannot restore them."""
    return conditions.true(
        ConditionType.DATA_LOST,
        Reason.MEMBERS_LOST,
        f"Redis lost members: there were {lost.members}, noticed at {lost.time}, and {left} are "
        "there; write the others again. An edit of the set ends this condition",
    )


def rows_wrong(wrong: tuple[str, ...]) -> str:
    """Say that some rows are invalid and left out."""
    count, named = len(wrong), "; ".join(wrong[:_ROWS_NAMED])
    more = f"; and {count - _ROWS_NAMED} more" if count > _ROWS_NAMED else ""
    rows = "1 row is" if count == 1 else f"{count} rows are"
    return f"{rows} wrong and left out: {named}{more}"


# -- Events ----------------------------------------------------------------------------------------


def event(state: FollowedSet, reason: Reason, note: str) -> Event:
    """Return a warning about this set."""
    seen = state.seen
    about = ObjectReference(
        namespace=seen.namespace, name=seen.name, uid=seen.uid, kind=schedules.SET_KIND
    )
    return events.new_event(about, "Reconcile", reason, note)
