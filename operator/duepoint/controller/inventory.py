"""Reads from the queue of slots that have not ended, over all shards.

Several services compare the occurrences in the queue with their own state, for example the open
slots of Schedules or of ScheduleRuns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions.occurrences import StoredOccurrence
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.schedules import points
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import PointKind

#: Definitions read at a time.
CHUNK = 500


async def occurrences(
    queue: DelayQueue, kinds: Collection[PointKind]
) -> AsyncIterator[tuple[messages.ShardId, StoredOccurrence, Definition]]:
    """Yield the occurrences of these kinds that have a definition, without their payloads.

    Raises QueueUnavailable.
    """
    try:
        for shard in sharding.all_shards(queue.layouts.known()):
            found = [
                occurrence.without_payload()
                async for occurrence in queue.occurrences.all_occurrences(shard)
                if occurrence.kind in kinds
            ]
            for first in range(0, len(found), CHUNK):
                chunk = found[first : first + CHUNK]
                ids = {occurrence.schedule_id for occurrence in chunk}
                known = await queue.definitions.read_definitions(shard, ids)
                for occurrence in chunk:
                    if (definition := known.get(occurrence.schedule_id)) is not None:
                        yield shard, occurrence, definition
    except queue_errors.LayoutChanged as change:
        raise resharded(change) from change


async def held_slots(queue: DelayQueue, known: Definition) -> frozenset[int]:
    """Read a schedule's slots that will be tried (again), of any kind; raises QueueUnavailable."""
    return frozenset(
        [
            one.slot_us
            for shard in sharding.homes(known.id, queue.layouts.known())
            async for one in queue.occurrences.all_occurrences(shard, of=known.id)
            if one.kind in points.TRIED_KINDS
        ]
    )


def resharded(change: queue_errors.LayoutChanged) -> errors.QueueUnavailable:
    """Return the error to raise if the shards changed during a read, which must be repeated."""
    return errors.QueueUnavailable(f"the index was resharded meanwhile: {change}")
