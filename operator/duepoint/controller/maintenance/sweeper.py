"""Rounds over all shards: what they disagree about is repaired, and unused texts are removed.

A sweep goes over all shards: definitions without a chain are armed from the newest of watermark,
beginning and creation; points without a definition go. Rounds roll: one after each comparison with
the objects, and one every quarter of an hour, each at a trickle: at most a twentieth of the time
is spent on it, one shard after the other, and between rounds nothing is asked of Redis.

After a suspicion (an emptied or failed-over server) the next round is made at full speed, several
shards side by side, once the objects have been compared: definition and point are written together
and are lost together, so before that there is nothing that a sweep could see. A round that trickles
at that time is broken off. Every step carries the term: an older leader's is refused.

Blobs and texts that are not used any more are looked for four times a day, at a trickle. The marks
stand in Redis, so that a new leader goes on where the former one was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duepoint import clock as clocks
from duepoint import errors, faults, services, telemetry
from duepoint.controller import plan
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.repair import mending
from duepoint.faults import FaultPoint
from duepoint.schedules.definition import Definition

#: From the end of a round to the next, where none is requested before.
ROLL_SECONDS = 900.0
#: Share of the time that is spent on a round that trickles.
_DUTY = 0.05
_LEAST_PAUSE_SECONDS = 0.005
#: Shards swept at a time at full speed: one computes here while another is read.
_SIDE_BY_SIDE = 4


class SweepRounds:
    """The service; one for each term of a leader.

    Args:
        watermark_us: the newest known watermark of a uid; 0 = unknown.

    Attributes:
        sweeps: number of complete rounds.
        outages: how often a shard was not to be had; it may be gone, alone among the others.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        watermark_us: Callable[[str], int],
        roll_seconds: float = ROLL_SECONDS,
    ) -> None:
        self._term = term
        self._watermark_us = watermark_us
        self._roll_seconds = roll_seconds
        self._asked = asyncio.Event()
        self._is_suspect = False
        self.sweeps = 0
        self.outages = 0

    def request(self) -> None:
        """Sweep once more: the objects have just been compared."""
        self._asked.set()

    def suspect(self) -> None:
        """The index may have lost something: the next round that is asked for is a fast one."""
        self._is_suspect = True

    async def run(self) -> None:
        """Sweep until cancelled; raises queue_errors.Fenced."""
        await self._asked.wait()  # before the first comparison a chain's due is unknown
        while True:
            self._asked.clear()
            await self._round()
            await clocks.wait_for(self._asked, self._roll_seconds, self._term.clock)

    async def _round(self) -> None:
        fast, self._is_suspect = self._is_suspect, False
        room = asyncio.Semaphore(_SIDE_BY_SIDE if fast else 1)

        async def one(shard: messages.ShardId) -> None:
            async with room:
                await self._sweep(shard, fast=fast)

        try:
            async with asyncio.TaskGroup() as group:
                for shard in sharding.own_shards(self._term.queue.layouts.known()):
                    group.create_task(one(shard))
        except BaseExceptionGroup as failed:  # the callers know the exceptions, not the group
            raise failed.exceptions[0] from failed
        if self._is_suspect and not fast:
            return  # broken off: what was to come is asked for with the comparison
        self.sweeps += 1
        telemetry.sweeps_total.labels("fast" if fast else "rolling").inc()

    async def _sweep(self, shard: messages.ShardId, *, fast: bool) -> None:
        cursor: str | None = None
        waits = services.backoff(first_seconds=0.5, most_seconds=10.0)
        while fast or not self._is_suspect:
            began = self._term.clock.monotonic()
            try:
                await faults.reach(FaultPoint.BEFORE_SWEEP)
                swept = await self._term.queue.sweeper.sweep(
                    shard, cursor, self._term.epoch, due_of=self._due_us
                )
                await faults.reach(FaultPoint.AFTER_SWEEP)
            except (errors.Bug, queue_errors.Damaged) as damage:
                telemetry.logger.error("shard cannot be swept", shard=shard, error=str(damage))
                return
            except errors.TryLater:
                self.outages += 1
                await self._term.clock.sleep(next(waits))
                continue
            self._report(shard, swept)
            cursor = swept.cursor
            spent = self._term.clock.monotonic() - began
            pause = 0.0 if fast else max(_LEAST_PAUSE_SECONDS, spent * (1 / _DUTY - 1))
            await self._term.clock.sleep(pause)
            if cursor is None:
                return

    def _due_us(self, known: Definition) -> int | None:
        try:
            return plan.chain_due_us(known, self._watermark_us(known.uid))
        except errors.InvalidExpression:
            return None  # stored by another version; the resync applies the object anew

    def _report(self, shard: messages.ShardId, swept: mending.Swept) -> None:
        for kind in ("armed", "dropped", "mended"):
            telemetry.sweep_repairs_total.labels(kind).inc(getattr(swept, kind))
        if swept.armed or swept.dropped or swept.mended:
            telemetry.logger.warning(
                "index repaired",
                shard=shard,
                armed=swept.armed,
                dropped=swept.dropped,
                mended=swept.mended,
            )


EVERY_SECONDS = 6 * 3600.0


class UnusedBlobs:
    """The service; one for each term of a leader."""

    def __init__(self, term: TermContext) -> None:
        self._term = term

    async def run(self) -> None:
        """Look until cancelled; raises queue_errors.Fenced."""
        while True:
            await self._term.clock.sleep(EVERY_SECONDS)
            layout = self._term.queue.layouts.known()
            if layout.former is not None:
                continue  # what a batch on its way needs is referenced nowhere yet
            for shard in sharding.own_shards(layout):
                try:
                    await self._look(shard)
                except errors.TryLater:
                    break  # nothing hurries: everything is looked at again next time

    async def _look(self, shard: messages.ShardId) -> None:
        removed = texts_removed = 0
        began = self._term.clock.monotonic()
        async for step in self._term.queue.collector.collect(shard, self._term.epoch):
            removed += step.removed
            texts_removed += step.texts_removed
            spent = self._term.clock.monotonic() - began
            await self._term.clock.sleep(max(_LEAST_PAUSE_SECONDS, spent * (1 / _DUTY - 1)))
            began = self._term.clock.monotonic()
        telemetry.blobs_removed_total.inc(removed)
        if removed or texts_removed:
            telemetry.logger.info(
                "unused blobs removed", shard=shard, count=removed, texts=texts_removed
            )
