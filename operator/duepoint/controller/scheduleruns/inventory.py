"""The occurrences of ScheduleRuns in the queue, and where a slot is that may be in it.

A leader that did not enqueue a slot itself, or got no answer when it did, finds the slot only by
looking, in this order: the occurrences in the queue, then every outcome reported so far, then the
ScheduleRuns with their published statuses, and at last the Jobs. A slot that is in none of them was
never enqueued, or was lost with the index, and may be enqueued (again). In any other order a slot
that ends meanwhile is seen in neither place, and would run twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import DuePoint, PointKind

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOccurrence:
    """An occurrence in the queue that belongs to a ScheduleRun."""

    run_uid: str
    slot_us: int
    kind: PointKind
    known: Definition

    @property
    def point(self) -> DuePoint:
        return points.manual(self.known.id, self.slot_us, self.run_uid, self.kind)


def withdrawn(held: HeldOccurrence, now_us: int) -> RunEvent:
    """The end of a slot that waited for its next attempt when its ScheduleRun was deleted."""
    known = held.known
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=held.slot_us,
        trigger=held.kind.name.title(),
        state=RunState.FAILED,
        reason=Reason.DELETED,
        at_us=now_us,
        message="its ScheduleRun was deleted before the delivery was accepted",
        finished_us=now_us,
        run_uid=held.run_uid,
    )


@dataclass(slots=True)
class Inventory:
    """Occurrences by the uid of their ScheduleRun."""

    by_run: dict[str, list[HeldOccurrence]] = field(default_factory=dict)

    def slots_of(self, run_uid: str) -> frozenset[int]:
        """Slots of one ScheduleRun."""
        return frozenset(occurrence.slot_us for occurrence in self.by_run.get(run_uid, ()))


async def read(queue: DelayQueue) -> Inventory:
    """All occurrences of ScheduleRuns; raises QueueUnavailable."""
    inventory = Inventory()
    try:
        for shard in sharding.all_shards(queue.layouts.known()):
            await _read(queue, shard, inventory)
    except queue_errors.LayoutChanged as change:
        raise errors.QueueUnavailable(f"the index was resharded meanwhile: {change}") from change
    return inventory


async def _read(queue: DelayQueue, shard: messages.ShardId, inventory: Inventory) -> None:
    occurrences = [
        occurrence
        async for occurrence in queue.occurrences.all_occurrences(shard)
        if occurrence.kind in points.RUN_KINDS
    ]
    for first in range(0, len(occurrences), _CHUNK):
        chunk = occurrences[first : first + _CHUNK]
        ids = {occurrence.schedule_id for occurrence in chunk}
        known = await queue.definitions.read_definitions(shard, ids)
        for occurrence in chunk:
            if (definition := known.get(occurrence.schedule_id)) is None:
                continue
            run_uid = occurrence.record.run_uid
            held = HeldOccurrence(
                run_uid=run_uid, slot_us=occurrence.slot_us, kind=occurrence.kind, known=definition
            )
            inventory.by_run.setdefault(run_uid, []).append(held)
