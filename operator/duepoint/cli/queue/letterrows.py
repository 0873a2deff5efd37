"""A dead letter as a row of ``duepoint dlq``: which slot, why, after how many attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duepoint.cli.queue import listing, sightings
from duepoint.schedules import points

if TYPE_CHECKING:
    from duepoint.delayqueue import messages


def row_of(letter: messages.DeadEntry) -> listing.Row:
    """What a letter says, under the names of the JSON output."""
    entry = letter.entry
    point = points.parse_member(letter.member, 0) if letter.member else None
    slot_us = _number(entry.get("slot_us"))
    if slot_us is None and point is not None and point.kind is not points.PointKind.CHAIN:
        slot_us = point.slot_us
    kind = entry.get("kind", "" if point is None else point.kind.name)
    return {
        "id": f"{sightings.shard_name(letter.shard)}/{letter.id}",
        "givenUp": listing.time(1000 * int(letter.id.partition("-")[0])),
        "namespace": entry.get("namespace", ""),
        "schedule": entry.get("name", ""),
        "uid": entry.get("uid", ""),
        "scheduledTime": listing.time(slot_us),
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
