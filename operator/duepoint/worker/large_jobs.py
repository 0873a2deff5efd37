"""Places for the creation of large Jobs: the API server has time for the others in between.

A Job of 250 KB costs an API server a hundred times what a usual one does, most of it after the
answer: each change of the Job, and of each Pod that is made of it, is stored and sent to everybody
who watches. So a place rests after each creation, the longer the larger the Job was and the longer
the API server took over it. Whatever gets no place soon is put off, as for other servers that may
be slow (``receiver_slots``): what waits here would take the room of what could be claimed.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import AsyncIterator

from duepoint import clock as clocks
from duepoint.worker.receiver_slots import ReceiverSlots

#: At a time; no namespace has all of them.
_PLACES = 4
#: A place rests as long as the creation took for each of these bytes, and no longer than this.
_REST_BYTES = 16 * 1024
_MOST_REST_SECONDS = 5.0


class LargeJobs:
    """``turn`` is around each creation."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._places = ReceiverSlots(clock, _PLACES)
        #: When each place that nobody has may be used again.
        self._rested = [float("-inf")] * _PLACES

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, size: int) -> AsyncIterator[float]:
        """One creation of so many bytes for this namespace; else seconds to try again after."""
        async with self._places.turn(namespace) as seconds:
            if seconds:
                yield seconds
                return
            usable_at = heapq.heappop(self._rested)
            try:
                await self._wait_until(usable_at)
                begun = self._clock.monotonic()
                try:
                    yield 0.0
                finally:
                    now = self._clock.monotonic()
                    usable_at = now + _rest_seconds(now - begun, size)
            finally:
                heapq.heappush(self._rested, usable_at)

    async def _wait_until(self, instant: float) -> None:
        if (left := instant - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)


def _rest_seconds(took_seconds: float, size: int) -> float:
    return min(took_seconds * size / _REST_BYTES, _MOST_REST_SECONDS)
