"""A run event: what has become of a slot, as workers tell it and the status writer reads it.

Events go through the shard's ``runs`` stream, many per entry, packed as msgpack arrays: fields
are only ever appended, with a default. An event is a fact about (uid, slot), so reading it twice
must change nothing that reading it once did not. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec


class RunState(enum.StrEnum):
    """How far a slot has come.

    The first three are runs, the next three slots that ended without one. A pending slot has not
    ended: it was handed over or put off, and later slots may end before it. Checked is no slot at
    all: what a generation refers to (Secrets) was looked at; an empty reason says that it is there.
    """

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    MISSED = "Missed"
    SUPERSEDED = "Superseded"
    PENDING = "Pending"
    CHECKED = "Checked"


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One thing that happened to a slot, or to ``count`` slots up to it.

    Attributes:
        slot_us: the slot; of several (missed ones), the newest.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        reason: a ``conditions.Reason``.
        started_us, finished_us: 0 = not yet.
        settled_us: every slot up to here has ended; 0 = this event does not move the watermark.
        completed: no slot is left.
        due_us: of a pending slot: slot plus jitter.
        since_us: of several missed slots, the oldest; 0 = ``slot_us`` alone is meant.
        more_us: further slots of which a pending event tells the same.
        run_uid: uid of the ScheduleRun that wanted it; empty for regular slots.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    slot_us: int
    trigger: str
    state: RunState
    reason: str
    at_us: int
    message: str = ""
    count: int = 1
    started_us: int = 0
    finished_us: int = 0
    attempts: int = 0
    job_name: str = ""
    http_status: int | None = None
    settled_us: int = 0
    completed: bool = False
    due_us: int = 0
    since_us: int = 0
    more_us: tuple[int, ...] = ()
    run_uid: str = ""


#: The fields of an event that says no more than the first of them, in their order.
Row = tuple[Any, ...]


def delivered_row(
    *,
    uid: str,
    namespace: str,
    name: str,
    generation: int,
    slot_us: int,
    trigger: str,
    message: str,
    at_us: int,
    started_us: int,
    accepted_us: int,
) -> Row:
    """The event of a regular slot whose first attempt was delivered, as ``pack`` takes it.

    For hundreds at a time: the same bytes as the event's, without the event.
    """
    return (
        *(uid, namespace, name, generation, slot_us, trigger, "Succeeded", "Succeeded"),
        *(at_us, message, 1, started_us, accepted_us, 1, "", None, slot_us),
    )


_decoder = msgspec.msgpack.Decoder(list[RunEvent])


def pack(events: Iterable[RunEvent | Row]) -> bytes:
    """The stream entry for some events; empty bytes for none."""
    listed = list(events)
    return msgspec.msgpack.encode(listed) if listed else b""


def unpack(entry: bytes) -> list[RunEvent]:
    """The events of a stream entry; raises msgspec.DecodeError on anything else."""
    return _decoder.decode(entry)
