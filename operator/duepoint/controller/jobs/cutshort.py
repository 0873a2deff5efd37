"""Runs whose Job was deleted while it ran: a failure, unless its Schedule was deleted.

Kubernetes deletes the Jobs of a Schedule right after it, and the watch of Jobs may show that before
the watch of Schedules shows the other. So such an end is told a moment later, when the Schedule is
either still known or not; the reporter passes over what is told of an unknown one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duepoint.clock import Clock
from duepoint.controller.reconciling.workqueue import WorkQueue
from duepoint.runs.run import RunEvent

#: One watch may be behind the other by this; less than a status waits, or each would cost two.
GRACE_SECONDS = 1.0
_TELLERS = 1


@dataclass(frozen=True, slots=True)
class _End:
    event: RunEvent
    not_before: float


class CutShort:
    """Ends that wait for their moment; one for each term of a leader."""

    def __init__(self, *, clock: Clock, tell: Callable[[RunEvent], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._ends: WorkQueue[_End] = WorkQueue(clock)

    def note(self, event: RunEvent) -> None:
        """The Job of this run was deleted before it had ended."""
        self._ends.put(event.job_uid, _End(event, self._clock.monotonic() + GRACE_SECONDS))

    async def run(self) -> None:
        """Tell until cancelled."""
        await self._ends.run(self._tell_one, _TELLERS)

    async def _tell_one(self, end: _End) -> float | None:
        wait = end.not_before - self._clock.monotonic()
        if wait > 0:
            return wait
        self._tell(end.event)
        return None
