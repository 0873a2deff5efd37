"""What the queue holds, as gauges of the active operator, read when somebody scrapes.

Nothing is asked of Redis between scrapes, so that an idle queue stays idle; however many scrape,
it is asked once in ten seconds, and never for longer than a scrape can wait. Where it does not
answer, the gauges keep what was seen last and ``duepoint_queue_seen_seconds`` grows old. At the end
of a term they are zero again: another operator tells them.
"""

from __future__ import annotations

import asyncio

from duepoint import errors, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue.delayqueue import DelayQueue

LEAST_SECONDS = 10.0
_MOST_SECONDS = 3.0
_GAUGES = (
    telemetry.queue_points,
    telemetry.queue_due_points,
    telemetry.oldest_due_seconds,
    telemetry.dead_entries,
    telemetry.circuits_open,
    telemetry.runs_backlog,
    telemetry.queue_seen_seconds,
)


class QueueGauges:
    """The service; one for each term of a leader."""

    def __init__(self, *, queue: DelayQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._asked_at: float | None = None

    async def run(self) -> None:
        """Answer scrapes until cancelled."""
        telemetry.before_scrape.add(self.refresh)
        try:
            await asyncio.Event().wait()
        finally:
            telemetry.before_scrape.discard(self.refresh)
            for gauge in _GAUGES:
                gauge.set(0)

    async def refresh(self) -> None:
        """Look again, unless somebody has just done so."""
        now = self._clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < LEAST_SECONDS:
            return
        self._asked_at = now
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                totals = await self._queue.counts.totals()
                known = await self._queue.circuits.read()
        except (TimeoutError, errors.TryLater, errors.WorldChanged):
            return
        telemetry.queue_points.set(totals.points)
        telemetry.queue_due_points.set(totals.due)
        telemetry.oldest_due_seconds.set(totals.lag_us / 1_000_000)
        telemetry.dead_entries.set(totals.dead)
        telemetry.circuits_open.set(sum(one.is_open for one in (known.hosts or {}).values()))
        telemetry.runs_backlog.set(totals.outcomes)
        telemetry.queue_seen_seconds.set(self._clock.now_us() / 1_000_000)
