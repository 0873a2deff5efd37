"""When blobs and texts that nobody uses are looked for: four times a day, at a trickle.

An idle queue is asked for nothing in between. The marks stand in Redis, so that a new leader goes
on where the former one was.
"""

from __future__ import annotations

from duepoint import errors, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue

EVERY_SECONDS = 6 * 3600.0
_DUTY = 0.05
_LEAST_PAUSE_SECONDS = 0.005


class Collector:
    """The service; one for each term of a leader."""

    def __init__(
        self,
        *,
        queue: DelayQueue,
        epoch: messages.Epoch,
        clock: Clock,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._queue = queue
        self._epoch = epoch
        self._clock = clock
        self._every_seconds = every_seconds

    async def run(self) -> None:
        """Look until cancelled; raises errors.Fenced."""
        while True:
            await self._clock.sleep(self._every_seconds)
            layout = self._queue.layouts.known()
            if layout.former is not None:
                continue  # what a batch on its way needs is referenced nowhere yet
            for shard in sharding.own_shards(layout):
                try:
                    await self._look(shard)
                except errors.TryLater:
                    break  # nothing hurries: everything is looked at again next time

    async def _look(self, shard: messages.ShardId) -> None:
        removed = texts_removed = 0
        began = self._clock.monotonic()
        async for step in self._queue.collector.collect(shard, self._epoch):
            removed += step.removed
            texts_removed += step.texts_removed
            spent = self._clock.monotonic() - began
            await self._clock.sleep(max(_LEAST_PAUSE_SECONDS, spent * (1 / _DUTY - 1)))
            began = self._clock.monotonic()
        telemetry.blobs_removed_total.inc(removed)
        if removed or texts_removed:
            telemetry.logger.info(
                "unused blobs removed", shard=shard, count=removed, texts=texts_removed
            )
