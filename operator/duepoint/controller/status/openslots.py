"""The position of a Schedule's chain in the queue, and its open slots.

A chain points to the first slot that was never handed over, so every older slot has ended or is
open, and an open one has an occurrence of its own. We read the chain before the occurrences: a slot
that is handed over in between is then above the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import errors
from duepoint.controller import inventory, plan
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions.occurrences import StoredOccurrence
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.runs.watermark import OpenSlot, OpenSlots
from duepoint.schedules import points
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.points import PointKind

_KINDS = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The slots of a Schedule, as read from the queue.

    Attributes:
        handed_us: the newest slot that was handed over; 0 = none, or unknown, for example while a
            worker has claimed the chain.
        open: slots that have not ended.
        replayed_us: those of them that were replayed from the dead letters.
    """

    shards: frozenset[messages.ShardId]
    handed_us: int
    open: OpenSlots
    replayed_us: frozenset[int]


async def read(queue: DelayQueue, known: Definition, now_us: int) -> Shown:
    """Read the slots of the Schedule with this stored definition.

    Raises QueueUnavailable.
    """
    shards = frozenset(sharding.homes(known.id, queue.layouts.known()))
    try:
        dues = [await queue.definitions.chain_due(shard, known) for shard in shards]
        found = [
            occurrence
            for shard in shards
            async for occurrence in queue.occurrences.all_occurrences(shard, of=known.id)
            if occurrence.kind in _KINDS
        ]
    except queue_errors.LayoutChanged as change:
        raise inventory.resharded(change) from change
    standing = [due_us for due_us in dues if due_us is not None]
    slots = {one.slot_us: _open_slot(one, known) for one in found}
    return Shown(
        shards=shards,
        handed_us=_handed_us(known, min(standing, default=None), now_us),
        open=tuple(slots[slot_us] for slot_us in sorted(slots)),
        replayed_us=frozenset(one.slot_us for one in found if one.record.replayed_us),
    )


def _handed_us(known: Definition, due_us: int | None, now_us: int) -> int:
    """Return the newest slot that was handed over; 0 = none, or unknown."""
    if due_us is None and known.state is State.ARMED:
        return 0  # the chain is about to be stored again
    if due_us is not None and due_us >= points.DUE_LIMIT_US:
        return 0  # a worker has claimed the chain
    try:
        return plan.slots_of(known).newest_due(now_us if due_us is None else due_us - 1) or 0
    except errors.InvalidExpression:
        return 0  # stored by another version


def _open_slot(occurrence: StoredOccurrence, known: Definition) -> OpenSlot:
    record = occurrence.record
    return OpenSlot(
        slot_us=occurrence.slot_us,
        due_us=record.first_try_us or occurrence.slot_us,
        reason=record.last_error,
        message=record.last_cause,
        # The slot of a Job starts and ends when the Job is created.
        started=record.first_try_us > 0 and not known.rule.whole_seconds,
        superseded=plan.is_superseded(occurrence, known),
    )
