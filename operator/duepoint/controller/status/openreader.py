"""What the queue holds of slots that have not ended, told to the reporter.

The streams tell of each slot when it is put off, once. Whoever begins to read them in the middle
(a new leader, a subscription that broke) first learns here which slots are open, so that no status
passes one without listing it. Reads in chunks; costs one range command per shard where nothing is
open.
"""

from __future__ import annotations

from collections.abc import Iterable

from duepoint import errors
from duepoint.clock import Clock
from duepoint.controller.status.reporter import Reporter
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
from duepoint.runs.openslots import OpenSlot
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import TIMED_KINDS, PointKind

_KINDS = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})
_CHUNK = 500


class OpenReader:
    """Compares the reporter's open slots with the queue's; one for each term of a leader."""

    def __init__(self, *, queue: DelayQueue, reporter: Reporter, clock: Clock) -> None:
        self._queue = queue
        self._reporter = reporter
        self._clock = clock

    async def compare(self) -> None:
        """The reporter knows every slot that is open now; raises QueueUnavailable."""
        began_us = self._clock.now_us()
        held: dict[str, list[OpenSlot]] = {}
        doubted = {one.shard for one in await self._queue.suspect_points.shards()}
        try:
            for shard in sharding.all_shards(self._queue.layouts.known()):
                await self._read(shard, held, began_us, is_doubted=shard in doubted)
        except scripting.LayoutChanged as change:
            raise errors.QueueUnavailable(
                f"the index was made anew meanwhile: {change}"
            ) from change
        self._reporter.compare_open(held, began_us)

    async def _read(
        self,
        shard: messages.ShardId,
        held: dict[str, list[OpenSlot]],
        now_us: int,
        *,
        is_doubted: bool,
    ) -> None:
        kinds = _KINDS | {PointKind.HELD}
        found = [
            one async for one in self._queue.occurrences.all_occurrences(shard) if one.kind in kinds
        ]
        for chunk in _chunks(found):
            known = await self._queue.definitions.read_definitions(
                shard, {one.schedule_id for one in chunk}
            )
            for one in chunk:
                definition = known.get(one.schedule_id)
                if definition is None or _is_superseded(one, definition):
                    continue
                if one.kind is PointKind.HELD:
                    self._reporter.hold(definition.uid, one.record.from_us or one.slot_us)
                elif not (is_doubted and self._is_old(one, definition)):
                    slot = _open_slot(one, definition, now_us)
                    held.setdefault(definition.uid, []).append(slot)

    def _is_old(self, one: messages.StoredOccurrence, known: Definition) -> bool:
        """Whether the server went back to before the end of the slot.

        Were it open, the status would say so soon, and the slot would run once more.
        """
        is_replayed = one.record.replayed_us > 0
        return not is_replayed and self._reporter.is_told_as_ended(known.uid, one.slot_us)


def _chunks(
    found: list[messages.StoredOccurrence],
) -> Iterable[list[messages.StoredOccurrence]]:
    return (found[first : first + _CHUNK] for first in range(0, len(found), _CHUNK))


def _is_superseded(one: messages.StoredOccurrence, known: Definition) -> bool:
    return one.kind in TIMED_KINDS and one.timing_version != known.timing_version


def _open_slot(one: messages.StoredOccurrence, known: Definition, now_us: int) -> OpenSlot:
    return OpenSlot(
        slot_us=one.slot_us,
        due_us=one.record.first_try_us or one.slot_us,
        told_us=now_us,
        reason=one.record.last_error,
        message=one.record.last_cause,
        # A Job starts with its Job, and then its slot has ended.
        started=one.record.first_try_us > 0 and not known.rule.whole_seconds,
    )
