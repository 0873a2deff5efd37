"""Attempts of one claim that wait for a place, and what becomes of them when the worker is to end.

They are due again at once, for other workers; what has begun may end. The slots of one catch-up are
tried one after the other: behind one that is being tried the others wait for it, and are given back
when it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from duepoint import errors, telemetry
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.worker.settler import Settler


class PendingAttempts:
    """Of one claim; ``close`` it when nothing of it is tried any more.

    Attributes:
        split: set when the queue holds every point that is tried.
    """

    def __init__(self, *, queue: DelayQueue, settler: Settler) -> None:
        self.split = asyncio.Event()
        self._queue = queue
        self._settler = settler
        self._waiting: set[bytes] = set()
        self._is_over = False
        self._giving: list[asyncio.Task[None]] = []

    def add(self, members: Iterable[bytes]) -> None:
        """The attempts of these points wait."""
        self._waiting.update(members)
        if self._is_over and self._waiting:
            self._giving.append(asyncio.create_task(self._give_back()))

    def begins(self, members: Iterable[bytes]) -> bool:
        """Whether the first of these may be tried now; the others wait for it then."""
        if self._is_over:
            return False
        self._waiting.difference_update(members)
        return True

    def end(self) -> None:
        """Nothing begins from now on; what waits is given back."""
        self._is_over = True
        self.add(())

    async def close(self) -> None:
        """What was to be given back is."""
        self.split.set()
        await asyncio.gather(*self._giving)

    async def _give_back(self) -> None:
        await self.split.wait()
        members, self._waiting = self._waiting, set()
        try:
            if members:
                await self._queue.claims.release(self._settler.claim, members)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("points not given back", error=str(trouble))
