"""What the queue holds for ScheduleRuns, and what of it nobody wants any more.

Whoever did not hand a slot over himself, or got no answer when he did, can tell where it is only
by looking, in this order: first the occurrences that the queue holds, then every outcome told so
far, then the ScheduleRuns with what their statuses say, and at last the Jobs. A slot that is in
none of them was never handed over, or was lost with the index: it may be handed over (again).
In any other order a slot that ends meanwhile is seen in neither place, and would run twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from duepoint import errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import DuePoint, PointKind

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An occurrence in the queue that some ScheduleRun wanted."""

    run_uid: str
    slot_us: int
    kind: PointKind
    known: Definition

    @property
    def point(self) -> DuePoint:
        return points.manual(self.known.id, self.slot_us, self.run_uid, self.kind)


def given_up(held: Held, now_us: int) -> RunEvent:
    """The end of a slot that waited for its next try when its ScheduleRun was deleted."""
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
class Survey:
    """All of them, by the uid of their ScheduleRun."""

    by_run: dict[str, list[Held]] = field(default_factory=dict)

    def slots_of(self, run_uid: str) -> frozenset[int]:
        """Slots of one ScheduleRun."""
        return frozenset(one.slot_us for one in self.by_run.get(run_uid, ()))


async def held(queue: DelayQueue) -> Survey:
    """What the queue holds; raises QueueUnavailable."""
    survey = Survey()
    try:
        for shard in sharding.all_shards(queue.layouts.known()):
            await _read(queue, shard, survey)
    except scripting.LayoutChanged as change:
        raise errors.QueueUnavailable(f"the index was made anew meanwhile: {change}") from change
    return survey


async def _read(queue: DelayQueue, shard: messages.ShardId, survey: Survey) -> None:
    found = [
        one
        async for one in queue.occurrences.all_occurrences(shard)
        if one.kind in points.RUN_KINDS
    ]
    for first in range(0, len(found), _CHUNK):
        chunk = found[first : first + _CHUNK]
        known = await queue.definitions.read_definitions(shard, {one.schedule_id for one in chunk})
        for one in chunk:
            if (definition := known.get(one.schedule_id)) is not None:
                survey.by_run.setdefault(one.record.run_uid, []).append(
                    Held(
                        run_uid=one.record.run_uid,
                        slot_us=one.slot_us,
                        kind=one.kind,
                        known=definition,
                    )
                )
