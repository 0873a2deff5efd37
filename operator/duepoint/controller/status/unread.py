"""What is put right after outcomes were dropped before anybody had read them.

A shard keeps a bounded number of bytes of outcomes. Where no operator reads for long, the oldest
go: counters and last runs of those slots are lost to the statuses, which a log line and a metric
tell. The watermark must not suffer: too high it would lose slots with the next loss of the index,
too low it would run them twice. The index itself knows better. A chain stands at the first slot
that was never handed over, so every older one has ended or is open; and what is open it holds. So
the chains are read first and the open slots after them: a slot older than such a chain is either
known to be open then, or has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from duepoint import errors, telemetry
from duepoint.clock import Clock
from duepoint.controller.schedules import plan
from duepoint.controller.status.openreader import OpenReader
from duepoint.controller.status.reporter import Reporter
from duepoint.delayqueue import messages, port
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
from duepoint.schedules.definition import Definition, State

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class _Passed:
    """A Schedule whose watermark is older than its chain allows."""

    uid: str
    slot_us: int
    completed: bool


class Unread:
    """The service of the one reader; one for each term of a leader."""

    def __init__(
        self,
        *,
        queue: DelayQueue,
        ledger: port.Ledger,
        reporter: Reporter,
        open_slots: OpenReader,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._reporter = reporter
        self._open_slots = open_slots
        self._clock = clock

    async def mend(self) -> None:
        """Every watermark is where the index allows; raises QueueUnavailable."""
        dropped = await self._ledger.dropped()
        if not dropped:
            return
        telemetry.logger.warning(
            "outcomes were dropped unread; counters and last runs of statuses lack them",
            entries=sum(dropped.values()),
            shards=len(dropped),
        )
        passed = await self._passed(dropped)
        await self._open_slots.compare()
        for one in passed:
            self._reporter.settled_through(one.uid, one.slot_us, completed=one.completed)
        await self._ledger.forget_dropped(dropped)
        telemetry.outcomes_dropped_total.inc(sum(dropped.values()))

    async def _passed(self, shards: Collection[messages.ShardId]) -> list[_Passed]:
        found: list[_Passed] = []
        try:
            for shard in shards:
                async for chunk in _chunks(self._queue.definitions.all_definitions(shard)):
                    found += await self._passed_of(shard, chunk)
                    await self._clock.sleep(0)  # let firing and statuses in between chunks
        except scripting.LayoutChanged as change:
            raise errors.QueueUnavailable(f"the index was cut anew meanwhile: {change}") from change
        return found

    async def _passed_of(
        self, shard: messages.ShardId, chunk: list[messages.Stored]
    ) -> list[_Passed]:
        known = await self._queue.definitions.read_definitions(
            shard, [stored.id for stored in chunk]
        )
        passed = []
        for stored in chunk:
            definition = known.get(stored.id)
            if definition is None or stored.claimed:
                continue  # gone, or its claim tells
            slot_us = self._through_us(definition, stored)
            completed = definition.state is State.COMPLETED
            if completed or slot_us > self._reporter.watermark_us(definition.uid):
                passed.append(_Passed(definition.uid, slot_us, completed))
        return passed

    def _through_us(self, known: Definition, stored: messages.Stored) -> int:
        """The newest slot that was handed over; 0 = none that is known."""
        if stored.due_us is None and known.state is not State.COMPLETED:
            return 0
        through_us = self._clock.now_us() if stored.due_us is None else stored.due_us - 1
        try:
            newest_us = plan.slots_of(known).newest_due(through_us)
        except errors.InvalidExpression:
            return 0  # stored by another version
        return newest_us if newest_us is not None and newest_us > known.not_before_us else 0


async def _chunks(
    found: AsyncIterator[messages.Stored],
) -> AsyncIterator[list[messages.Stored]]:
    chunk: list[messages.Stored] = []
    async for one in found:
        chunk.append(one)
        if len(chunk) >= _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
