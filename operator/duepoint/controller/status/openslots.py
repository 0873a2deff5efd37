"""Open slots and watermarks, compared with the index in Redis.

The outcome streams report a slot that is put off once. A reader that starts in the middle (a new
leader, a broken subscription) first compares: it learns which slots are open, so that no status
passes a slot without listing it. That costs one range command per shard where nothing is open.

A shard keeps a bounded number of bytes of outcomes. Where no operator reads for long, the oldest
are dropped: the statuses miss their counters and last runs, which a log line and a metric report.
The watermark must not suffer: too high it would lose slots with the next loss of the index, too low
it would run them twice. The index knows better: a chain stands at the first slot that was never
handed over, so every older one has ended or is open, and the open ones are in the index. So the
chains are read first and the open slots after them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from duepoint import errors, telemetry
from duepoint.controller import inventory, plan
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import ledger, messages
from duepoint.delayqueue.definitions import occurrences
from duepoint.runs.watermark import OpenSlot
from duepoint.schedules import points
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.points import PointKind

_ID_LENGTH = 8
_KINDS = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})
#: A Schedule whose watermark is older than its chain allows: uid, newest slot, no slot is left.
_Passed = tuple[str, int, bool]


class OpenSlotReader:
    """Compares the reporter's open slots and watermarks with the index; one for each term."""

    def __init__(self, term: TermContext, *, reporter: Reporter) -> None:
        self._term = term
        self._reporter = reporter

    # -- open slots ------------------------------------------------------------------------------

    async def compare(self) -> None:
        """The reporter knows every slot that is open now; raises QueueUnavailable."""
        began_us = self._term.clock.now_us()
        held: dict[str, list[OpenSlot]] = {}
        doubted = await self._shards_in_doubt()
        old: list[tuple[messages.ShardId, str, OpenSlot]] = []
        kept = inventory.occurrences(self._term.queue, _KINDS)
        async for shard, occurrence, definition in kept:
            if plan.is_superseded(occurrence, definition):
                continue
            slot = _open_slot(occurrence, definition, began_us)
            if self._is_old(occurrence, definition):
                old.append((shard, definition.uid, slot))
            else:
                held.setdefault(definition.uid, []).append(slot)
        # Once more: a server may have gone back after the first question and before it was read.
        doubted |= await self._shards_in_doubt(every=True) if old else frozenset()
        for shard, uid, slot in old:
            if shard not in doubted:
                held.setdefault(uid, []).append(slot)
        self._reporter.compare_open(held, began_us)

    async def _shards_in_doubt(self, *, every: bool = False) -> frozenset[messages.ShardId]:
        doubts = await self._term.queue.fallbacks.doubts(every=every)
        return frozenset(doubt.shard for doubt in doubts)

    def _is_old(self, occurrence: occurrences.StoredOccurrence, known: Definition) -> bool:
        """Whether the slot has ended by the published status.

        Where its server went back, that was to before the end of the slot. If it counted as open,
        the status would soon say so, and the slot would run once more.
        """
        is_replayed = occurrence.record.replayed_us > 0
        return not is_replayed and self._reporter.states.is_published_as_ended(
            known.uid, occurrence.slot_us
        )

    # -- dropped outcomes ------------------------------------------------------------------------

    async def mend_dropped(self, ledger: ledger.Ledger) -> None:
        """Where outcomes were dropped, every watermark is what the index says.

        Raises QueueUnavailable.
        """
        dropped = await ledger.dropped()
        if not dropped:
            return
        telemetry.logger.warning(
            "outcomes were dropped unread; counters and last runs of statuses lack them",
            entries=sum(dropped.values()),
            shards=len(dropped),
        )
        passed = await self._passed(dropped)
        await self.compare()
        for uid, slot_us, completed in passed:
            self._reporter.settled_through(uid, slot_us, completed=completed)
        await ledger.forget_dropped(dropped)
        telemetry.outcomes_dropped_total.inc(sum(dropped.values()))

    async def _passed(self, shards: Collection[messages.ShardId]) -> list[_Passed]:
        passed: list[_Passed] = []
        try:
            for shard in shards:
                stored: dict[bytes, float | None] = {}
                async for chains in self._term.queue.definitions.chains(shard):
                    stored.update(chains)
                ids = [points.ScheduleId(chain[:_ID_LENGTH]) for chain in stored]
                for first in range(0, len(ids), inventory.CHUNK):
                    some = ids[first : first + inventory.CHUNK]
                    passed += await self._passed_of(shard, some, stored)
                    await self._term.clock.sleep(0)  # firing and statuses go on between chunks
        except queue_errors.LayoutChanged as change:
            raise inventory.resharded(change) from change
        return passed

    async def _passed_of(
        self,
        shard: messages.ShardId,
        ids: Collection[points.ScheduleId],
        chains: Mapping[bytes, float | None],
    ) -> list[_Passed]:
        known = await self._term.queue.definitions.read_definitions(shard, ids)
        passed = []
        for definition in known.values():
            chain = definition.id + definition.timing_version
            score = chains.get(chain, math.inf)  # edited meanwhile: it belongs to another rule
            if score is not None and score >= points.DUE_LIMIT_US:
                continue  # its claim reports
            slot_us = self._through_us(definition, score)
            completed = definition.state is State.COMPLETED
            if completed or slot_us > self._reporter.states.watermark_us(definition.uid):
                passed.append((definition.uid, slot_us, completed))
        return passed

    def _through_us(self, known: Definition, due_us: float | None) -> int:
        """The newest slot that was handed over; 0 = none that is known."""
        if due_us is None and known.state is not State.COMPLETED:
            return 0
        through_us = self._term.clock.now_us() if due_us is None else int(due_us) - 1
        try:
            newest_us = plan.slots_of(known).newest_due(through_us)
        except errors.InvalidExpression:
            return 0  # stored by another version
        return newest_us if newest_us is not None and newest_us > known.not_before_us else 0


def _open_slot(
    occurrence: occurrences.StoredOccurrence, known: Definition, now_us: int
) -> OpenSlot:
    record = occurrence.record
    return OpenSlot(
        slot_us=occurrence.slot_us,
        due_us=record.first_try_us or occurrence.slot_us,
        told_us=now_us,
        reason=record.last_error,
        message=record.last_cause,
        # A Job's slot starts and ends with the creation of the Job.
        started=record.first_try_us > 0 and not known.rule.whole_seconds,
    )
