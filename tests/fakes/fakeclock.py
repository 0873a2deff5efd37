"""Virtual time: a clock that moves when a test says so.

Sleepers wake in the order of their times, each seeing the moment it asked for. One time line
serves as wall clock (microseconds UTC) and as monotonic clock (seconds).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from duepoint.clock import MICROSECONDS_PER_SECOND

#: 2026-03-01T12:00:00Z.
DEFAULT_START_US = 1_772_366_400_000_000

# Turns of the event loop given to whoever was woken before time goes on.
_SETTLING_TURNS = 40


class FakeClock:
    """A ``clock.Clock`` under a test's control."""

    def __init__(self, start_us: int = DEFAULT_START_US) -> None:
        self._now_us = start_us
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._now_us / MICROSECONDS_PER_SECOND

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        # at least one microsecond, or a waiter for "the next instant" would spin
        until_us = self._now_us + max(1, round(seconds * MICROSECONDS_PER_SECOND))
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (until_us, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, waking whoever slept until then."""
        end_us = self._now_us + round(seconds * MICROSECONDS_PER_SECOND)
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end_us:
            until_us, _, woken = heapq.heappop(self._sleepers)
            if woken.done():
                continue
            self._now_us = max(self._now_us, until_us)
            woken.set_result(None)
            await self.settle()
        self._now_us = max(self._now_us, end_us)
        await self.settle()

    async def suspend(self, seconds: float) -> None:
        """Let the machine stand still for so long: nobody wakes, and sleeps go on afterwards."""
        by_us = round(seconds * MICROSECONDS_PER_SECOND)
        self._now_us += by_us
        self._sleepers = [(us + by_us, order, woken) for us, order, woken in self._sleepers]
        await self.settle()

    async def settle(self) -> None:
        """Let everything run that can run without time passing."""
        # asyncio tells nobody whether a turn of its loop found work, hence the private name; loops
        # of other makes have none and take every turn.
        ready = getattr(asyncio.get_running_loop(), "_ready", True)
        for _ in range(_SETTLING_TURNS):
            await asyncio.sleep(0)
            if not ready:
                return
