"""What the queue holds, as rows: points, claims, dead letters, and why a Schedule has no point.

The slot of a chain point is worked out from the definition's rule, as a worker does it; where the
rule cannot be read, the row leaves the slot out.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from duepoint import errors
from duepoint.cli import output
from duepoint.schedules import points, slots
from duepoint.schedules.definition import State
from duepoint.schedules.points import PointKind

if TYPE_CHECKING:
    from duepoint.delayqueue import deadletters, messages
    from duepoint.delayqueue.delayqueue import DelayQueue
    from duepoint.delayqueue.inspection import upcoming


def shard_number(shard: messages.ShardId) -> int:
    """A shard's number within its layout."""
    return int(shard_name(shard).partition(".")[2])


def layout_number(shard: messages.ShardId) -> int:
    """The layout that a shard belongs to; while the number of shards changes there are two."""
    return int(shard_name(shard).partition(".")[0])


def shard_name(shard: messages.ShardId) -> str:
    """A shard's name while the number of shards changes, too: its layout and its number there."""
    from duepoint.delayqueue import sharding  # noqa: PLC0415 - only these commands pay for it

    return f"{sharding.layout_of(shard)}.{sharding.index_of(shard)}"


async def found(opened: DelayQueue, namespace: str, schedule: str) -> upcoming.ScheduleView | None:
    """The Schedule of this namespace with this uid or name."""
    if _is_uid(schedule):
        by_uid = await opened.upcoming.schedule_view(namespace, uid=schedule)
        if by_uid is not None:
            return by_uid
    return await opened.upcoming.schedule_view(namespace, name=schedule)


def of_point(sight: upcoming.PointView, now_us: int) -> output.Row:
    """A point and what it stands for."""
    due_us = sight.due_us
    return {
        "namespace": sight.namespace,
        "schedule": "" if sight.known is None else sight.known.name,
        "uid": "" if sight.known is None else sight.known.uid,
        "kind": sight.point.kind.name.lower(),
        "scheduledTime": output.time(_slot_us(sight)),
        "due": output.time(due_us),
        "inSeconds": None if due_us is None else (due_us - now_us) / 1_000_000,
        "state": _state(due_us, now_us),
        "attempt": None if sight.record is None else sight.record.attempt + 1,
        "lastError": "" if sight.record is None else sight.record.last_error,
        "lastCause": "" if sight.record is None else sight.record.last_cause,
        "shard": shard_number(sight.shard),
    }


def of_lease(lease: upcoming.ClaimView) -> output.Row:
    """A claim with its points."""
    left_us = lease.until_us - lease.now_us
    return {
        "worker": lease.worker,
        "until": output.time(lease.until_us),
        "inSeconds": left_us / 1_000_000,
        "expired": left_us <= 0,
        "attempts": lease.reclaimed,
        "claim": lease.id.hex(),
        "shard": shard_number(lease.shard),
        "count": len(lease.points),
        "points": [
            {
                "namespace": each.namespace,
                "schedule": "" if each.known is None else each.known.name,
                "uid": "" if each.known is None else each.known.uid,
                "kind": each.point.kind.name.lower(),
                "scheduledTime": output.time(_slot_us(each)),
                "due": output.time(each.due_us),
                "attempt": None if each.record is None else each.record.attempt + 1,
            }
            for each in lease.points
        ],
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


def _state(due_us: int | None, now_us: int) -> str:
    if due_us is None:
        return "held"
    return "due" if due_us <= now_us else "waiting"


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


def _is_uid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def row_of(letter: deadletters.DeadEntry) -> output.Row:
    """What a letter says, under the names of the JSON output."""
    entry = letter.entry
    point = points.parse_member(letter.member, 0) if letter.member else None
    slot_us = _number(entry.get("slot_us"))
    if slot_us is None and point is not None and point.kind is not points.PointKind.CHAIN:
        slot_us = point.slot_us
    kind = entry.get("kind", "" if point is None else point.kind.name)
    return {
        "id": f"{shard_name(letter.shard)}/{letter.id}",
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
