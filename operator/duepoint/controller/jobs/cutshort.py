"""Runs whose Job was taken away while it ran: how they ended is told a moment later.

Kubernetes deletes the Jobs of a Schedule right after it, and the watch of Jobs may show that before
the watch of Schedules shows the other. So such an end is told a moment later, when the Schedule is
either still known or not; the reporter passes over what is told of an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs.gone import TellGone
from duepoint.controller.schedules.workqueue import WorkQueue
from duepoint.runs.run import RunEvent

#: One watch may be behind the other by this; less than a status waits, or each would cost two.
GRACE_SECONDS = 1.0
_TELLERS = 1


@dataclass(frozen=True, slots=True)
class _End:
    event: RunEvent
    seen_at: float


class CutShort:
    """Ends that wait for their moment; one for each term of a leader."""

    def __init__(self, *, clock: Clock, tell: TellGone) -> None:
        self._clock = clock
        self._tell = tell
        self._waits: dict[str, Iterator[float]] = {}
        self._ends: WorkQueue[_End] = WorkQueue(clock)

    def note(self, event: RunEvent) -> None:
        """The Job of this run was deleted or released before it had ended."""
        self._ends.put(event.job_uid, _End(event, self._clock.monotonic()))

    async def run(self) -> None:
        """Tell until cancelled."""
        await self._ends.run(self._tell_one, _TELLERS)

    async def _tell_one(self, end: _End) -> float | None:
        wait = end.seen_at + GRACE_SECONDS - self._clock.monotonic()
        if wait > 0:
            return wait
        job_uid = end.event.job_uid
        try:
            await self._tell(end.event, end.seen_at)
        except errors.TryLater as trouble:
            telemetry.logger.debug("the end of a job not told yet", error=str(trouble))
            backoff = services.backoff(first_seconds=0.5, most_seconds=30.0)
            return next(self._waits.setdefault(job_uid, backoff))
        self._waits.pop(job_uid, None)
        return None
