"""The position of a Schedule's chain in the queue, and its open slots.

A chain points to the first slot that was never handed over, so every older slot has ended or is
open, and an open one has an occurrence of its own. We read the chain before the occurrences: a slot
that is handed over in between is then above the watermark.
"""

from __future__ import annotations

from msgspec.structs import replace

from duepoint import errors
from duepoint.controller import inventory, plan
from duepoint.controller.status.state import ScheduleState
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import sharding
from duepoint.delayqueue.definitions.occurrences import StoredOccurrence
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.runs import summary as summaries
from duepoint.runs import watermark
from duepoint.runs.watermark import OpenSlot
from duepoint.schedules import points
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.points import PointKind

_KINDS = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})


async def read(queue: DelayQueue, state: ScheduleState, stored: Definition, now_us: int) -> None:
    """Read the slots of a Schedule with this stored definition into its state.

    Raises QueueUnavailable.
    """
    shards = frozenset(sharding.homes(stored.id, queue.layouts.known()))
    try:
        dues = [await queue.definitions.chain_due(shard, stored) for shard in shards]
        found = [
            occurrence
            for shard in shards
            async for occurrence in queue.occurrences.all_occurrences(shard, of=stored.id)
            if occurrence.kind in _KINDS
        ]
    except queue_errors.LayoutChanged as change:
        raise inventory.resharded(change) from change
    published = state.last().watermark
    if any(published.has_ended(one.slot_us) and not one.record.replayed_us for one in found):
        # If the server went back, these slots have ended and must not be reopened.
        doubts = await queue.fallbacks.doubts(every=True)
        if not shards.isdisjoint(doubt.shard for doubt in doubts):
            return
    standing = [due_us for due_us in dues if due_us is not None]
    handed_us = _handed_us(stored, min(standing, default=None), now_us)
    runs = state.runs()
    # A slot that is not in the queue has ended if the chain is beyond it.
    still_open = watermark.joined(
        tuple(slot for slot in state.open if slot.slot_us > handed_us),
        [
            _open_slot(one, stored)
            for one in found
            if state.is_open(one.slot_us) or not summaries.has_ended(runs, one.slot_us)
        ],
    )
    is_chain = handed_us > stored.not_before_us and stored.state is not State.SUSPENDED
    state.settle(handed_us if is_chain else 0, still_open)
    if stored.state is State.COMPLETED and not runs.completed:
        state.summary = replace(state.runs(), completed=True)


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
