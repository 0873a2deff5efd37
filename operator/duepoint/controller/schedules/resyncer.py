"""When a resync is made: at once, on a rhythm, and after everything that may have lost a change.

Requests come in bursts (kopf listing 100,000 objects tells of each, for a minute), so each puts the
resync off a little, but never by more than a bound from the first: one listing, one comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from duepoint import clock as clocks
from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.termevents import TermEvents
from duepoint.kube import errors as kube_errors

#: From a request to its resync, and at most from the first of a burst.
_SETTLE_SECONDS = 2.0
_MOST_SETTLE_SECONDS = 120.0


class Resyncer:
    """The service.

    Args:
        resync: makes one comparison.
        every_seconds: the rhythm.
        listed: set once the first was complete, or has failed, unless it was set by the list.

    Attributes:
        first_done: set once the first has been complete.
        has_succeeded: whether the last one that was tried was complete.
        done: number of complete ones.
    """

    def __init__(
        self,
        *,
        resync: Callable[[], Awaitable[None]],
        every_seconds: float,
        clock: Clock,
        health: services.Health,
        events: TermEvents,
        listed: asyncio.Event,
    ) -> None:
        self._resync = resync
        self._every_seconds = every_seconds
        self._clock = clock
        self._health = health
        self._events = events
        self._asked = asyncio.Event()
        self._first_asked_at: float | None = None
        self._due = clock.monotonic()
        self._listed = listed
        self.first_done = asyncio.Event()
        self.has_succeeded = False
        self.done = 0

    def request(self) -> None:
        """Something may have been missed: compare soon."""
        now = self._clock.monotonic()
        if self._first_asked_at is None:
            self._first_asked_at = now
        self._due = min(now + _SETTLE_SECONDS, self._first_asked_at + _MOST_SETTLE_SECONDS)
        self._asked.set()

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            await self._wait_until_due()
            self._first_asked_at = None
            self._due = self._clock.monotonic() + self._every_seconds
            await self._until_complete()

    async def _wait_until_due(self) -> None:
        while (seconds := self._due - self._clock.monotonic()) > 0:
            self._asked.clear()
            await clocks.wait_for(self._asked, seconds, self._clock)

    async def _until_complete(self) -> None:
        pauses = services.backoff(first_seconds=0.5, most_seconds=15.0)
        while True:
            try:
                await self._resync()
            except (errors.TryLater, kube_errors.ApiError) as trouble:
                self.has_succeeded = False
                self._listed.set()
                if self._health.unwell("resync", str(trouble)):
                    telemetry.logger.warning("objects cannot be compared", error=str(trouble))
                await self._clock.sleep(next(pauses))
                continue
            self._health.well("resync")
            self.done += 1
            self.has_succeeded = True
            self._listed.set()
            self.first_done.set()
            self._events.objects_compared()
            return
