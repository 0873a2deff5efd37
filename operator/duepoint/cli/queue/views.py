"""What the queue holds, as rows: points, dead letters, and why a Schedule has no point.

The slot of a chain point is worked out from the definition's rule, as a worker does it; where the
rule cannot be read, the row leaves the slot out.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import TYPE_CHECKING

from duepoint import errors
from duepoint.cli import options, output
from duepoint.delayqueue import sharding
from duepoint.schedules import points, slots
from duepoint.schedules.definition import State
from duepoint.schedules.points import PointKind

if TYPE_CHECKING:
    from duepoint.delayqueue import deadletters
    from duepoint.delayqueue.delayqueue import DelayQueue
    from duepoint.delayqueue.inspection import upcoming


async def found(opened: DelayQueue, namespace: str, schedule: str) -> upcoming.ScheduleView | None:
    """The Schedule of this namespace with this uid or name."""
    is_uid = False
    with contextlib.suppress(ValueError):
        is_uid = str(uuid.UUID(schedule)) == schedule
    if is_uid and (by_uid := await opened.upcoming.schedule_view(namespace, uid=schedule)):
        return by_uid
    return await opened.upcoming.schedule_view(namespace, name=schedule)


def of_point(sight: upcoming.PointView, now_us: int) -> output.Row:
    """A point and what it stands for."""
    due_us = sight.due_us
    return {
        **_point(sight),
        "inSeconds": None if due_us is None else (due_us - now_us) / 1_000_000,
        "state": "held" if due_us is None else "due" if due_us <= now_us else "waiting",
        "lastError": "" if sight.record is None else sight.record.last_error,
        "lastCause": "" if sight.record is None else sight.record.last_cause,
        "shard": sharding.index_of(sight.shard),
    }


def _point(sight: upcoming.PointView) -> output.Row:
    return {
        "namespace": sight.namespace,
        "schedule": "" if sight.known is None else sight.known.name,
        "uid": "" if sight.known is None else sight.known.uid,
        "kind": sight.point.kind.name.lower(),
        "scheduledTime": output.time(_slot_us(sight)),
        "due": output.time(sight.due_us),
        "attempt": None if sight.record is None else sight.record.attempt + 1,
    }


def is_of(row: output.Row, namespace: str | None, schedule: str | None) -> bool:
    """Whether a row is of this namespace and Schedule; None = any."""
    if namespace is not None and row["namespace"] != namespace:
        return False
    return schedule is None or schedule in (row["schedule"], row["uid"])


def why_no_point(sight: upcoming.ScheduleView) -> str:
    """Why the queue waits for nothing of this Schedule."""
    match sight.known.state:
        case State.SUSPENDED:
            return "it is suspended"
        case State.COMPLETED:
            return "it is completed, no slot is left"
        case State.ARMED:
            return "its definition says armed, so the next sweep of the operator repairs it"


def _slot_us(sight: upcoming.PointView) -> int | None:
    if sight.point.kind is not PointKind.CHAIN:
        return sight.point.slot_us
    known = sight.known
    if known is None or sight.due_us is None:
        return None
    try:
        timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    except errors.InvalidExpression:
        return None
    return timeline.at_or_before(sight.due_us)


# -- dead letters --------------------------------------------------------------------------------

_LETTER_ID = re.compile(r"(\d{1,5})\.(\d{1,5})/(\d{1,20}-\d{1,20})", re.ASCII)


def _letter_id(text: str) -> tuple[int, int, str]:
    if parts := _LETTER_ID.fullmatch(text):
        return int(parts[1]), int(parts[2]), parts[3]
    example = "write SHARD/ENTRY as list shows it, such as 1.17/1763771234567-0"
    raise ValueError(f"{errors.quoted(text)}: {example}")


#: A letter's id: its layout, shard and entry.
LETTER_ID = options.Converted(_letter_id)


def row_of(letter: deadletters.DeadEntry) -> output.Row:
    """What a letter says, under the names of the JSON output."""
    entry = letter.entry
    layout, number = sharding.layout_of(letter.shard), sharding.index_of(letter.shard)
    point = points.parse_member(letter.member, 0) if letter.member else None
    slot_us = _number(entry.get("slot_us"))
    if slot_us is None and point is not None and point.kind is not points.PointKind.CHAIN:
        slot_us = point.slot_us
    kind = entry.get("kind", "" if point is None else point.kind.name)
    return {
        "id": f"{layout}.{number}/{letter.id}",
        "givenUp": output.time(1000 * int(letter.id.partition("-")[0])),
        "namespace": entry.get("namespace", ""),
        "schedule": entry.get("name", ""),
        "uid": entry.get("uid", ""),
        "scheduledTime": output.time(slot_us),
        "kind": kind.lower(),
        "trigger": entry.get("trigger", ""),
        "runUid": entry.get("run_uid", ""),
        "reason": entry.get("reason", ""),
        "message": entry.get("message", ""),
        "attempts": _number(entry.get("attempts")),
        "httpStatus": _number(entry.get("http_status")),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None
