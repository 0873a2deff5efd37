"""The sweeps: walk all shards every hour, and after an upheaval; see ``delayqueue.repair.sweeper``.

The first walk follows the first comparison with the objects, because the due time of a lost chain
follows from the watermark of its Schedule. After a suspected loss (an emptied or failed-over
server), the next comparison triggers another walk. A walk is slow: it goes over one shard after the
other and takes at most a twentieth of the time. Redis gets no commands between walks. Every script
has the epoch of the term as its fencing token, so that an older leader's is refused.
"""

from __future__ import annotations

import asyncio

from duepoint import errors, telemetry
from duepoint.controller import plan
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.schedules.definition import Definition

PART = "sweep"
#: The wait from the end of a walk to the next.
EVERY_SECONDS = 3_600.0
#: The share of the time that a walk may take.
_DUTY = 0.05
_LEAST_PAUSE_SECONDS = 0.005


class Sweeps:
    """The service; one for each term of a leader."""

    def __init__(self, term: TermContext, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._term = term
        self._every_seconds = every_seconds
        self._asked = asyncio.Event()
        self._is_suspect = True

    def suspect(self) -> None:
        """Request a walk after the next comparison: the index may have lost something."""
        self._is_suspect = True

    def compared(self) -> None:
        """Begin a requested walk: all objects have just been compared with the queue."""
        if self._is_suspect:
            self._is_suspect = False
            self._asked.set()

    async def run(self) -> None:
        """Walk until cancelled; raises queue_errors.Fenced."""
        await self._asked.wait()
        await self._term.repeat(
            PART,
            self._walk_all,
            "the index cannot be swept",
            asked=self._asked,
            every_seconds=self._every_seconds,
        )

    async def _walk_all(self) -> None:
        for shard in sharding.own_shards(self._term.queue.layouts.known()):
            try:
                await self._walk(shard)
            except (errors.Bug, queue_errors.Damaged) as damage:
                telemetry.logger.error("shard cannot be swept", shard=shard, error=str(damage))
            except errors.TryLater:
                self._term.services.index.suspect()  # this shard alone may be gone
                raise

    async def _walk(self, shard: messages.ShardId) -> None:
        clock = self._term.clock
        began = clock.monotonic()
        async for swept in self._term.queue.sweeper.sweep(
            shard, self._term.epoch, due_of=self._due_us
        ):
            if swept.armed:
                telemetry.logger.warning(
                    "lost chains are armed again", shard=shard, count=swept.armed
                )
            if swept.blobs or swept.texts:
                telemetry.logger.info(
                    "unused blobs and texts removed",
                    shard=shard,
                    blobs=swept.blobs,
                    texts=swept.texts,
                )
            spent = clock.monotonic() - began
            await clock.sleep(max(_LEAST_PAUSE_SECONDS, spent * (1 / _DUTY - 1)))
            began = clock.monotonic()

    def _due_us(self, known: Definition) -> int | None:
        state = self._term.services.states.get(known.uid)
        try:
            return plan.chain_due_us(known, 0 if state is None else state.runs().settled_us)
        except errors.InvalidExpression:
            return None  # stored by another version; the resync applies the object anew
