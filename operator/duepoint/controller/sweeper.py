"""The repair of the queue, at a trickle.

After each resync, one sweep over all shards: definitions without a chain are armed from the newest
of watermark, beginning and creation; points without a definition go. At most a twentieth of the
time is spent on it, and between sweeps nothing is asked of Redis at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller import plan
from duepoint.delayqueue import messages, port, sharding
from duepoint.schedules.definition import Definition

_DUTY = 0.05
_LEAST_PAUSE_SECONDS = 0.005


class Sweeper:
    """The service; one for each term of a leader.

    Args:
        watermark_us: the newest known watermark of a uid; 0 = unknown.
    """

    def __init__(
        self,
        *,
        queue: port.Queue,
        layout: messages.Layout,
        epoch: messages.Epoch,
        watermark_us: Callable[[str], int],
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._layout = layout
        self._epoch = epoch
        self._watermark_us = watermark_us
        self._clock = clock
        self._asked = asyncio.Event()
        self.sweeps = 0

    def request(self) -> None:
        """Sweep once more."""
        self._asked.set()

    async def run(self) -> None:
        """Sweep when asked, until cancelled; raises scripting.Fenced."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            for shard in sharding.all_shards(self._layout):
                await self._sweep(shard)
            self.sweeps += 1

    async def _sweep(self, shard: messages.ShardId) -> None:
        cursor: str | None = None
        waits = services.backoff(first_seconds=0.5, most_seconds=10.0)
        while True:
            began = self._clock.monotonic()
            try:
                swept = await self._queue.sweep(shard, cursor, self._epoch, due_of=self._due_us)
            except errors.TryLater:
                await self._clock.sleep(next(waits))
                continue
            self._tell(shard, swept)
            cursor = swept.cursor
            spent = self._clock.monotonic() - began
            await self._clock.sleep(max(_LEAST_PAUSE_SECONDS, spent * (1 / _DUTY - 1)))
            if cursor is None:
                return

    def _due_us(self, known: Definition) -> int | None:
        try:
            return plan.chain_due_us(known, self._watermark_us(known.uid))
        except errors.InvalidExpression:
            return None  # stored by another version; the resync applies the object anew

    def _tell(self, shard: messages.ShardId, swept: messages.Swept) -> None:
        if swept.armed or swept.dropped or swept.mended:
            telemetry.logger.warning(
                "index repaired",
                shard=shard,
                armed=swept.armed,
                dropped=swept.dropped,
                mended=swept.mended,
            )
