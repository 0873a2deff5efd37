"""Jobs that a worker deletes in favour of a newer slot, under policy ``Replace``.

A worker reports that before it deletes, in the outcomes; what becomes of the Job the watch shows.
So before a run counts as failed because its Job is gone, every outcome up to then is read: a Job
that Duepoint replaced is never taken for one that a user deleted, whichever is seen first. One
reading serves all Jobs that were gone when it began: thousands may go at once. A report stays
unacknowledged until the Job is gone or has ended, so the next leader reads it again if this one
dies in between.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from duepoint.clock import Clock
from duepoint.controller.status.acknowledgements import Acknowledgement
from duepoint.controller.status.reporter import Reporter
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason


@dataclass(frozen=True, slots=True)
class _Announced:
    """A replacement that a worker has announced."""

    event: RunEvent
    ack: Acknowledgement | None


class Replacements:
    """The announced replacements; one for each term of a leader.

    Args:
        catch_up: returns once every outcome up to the call has been reported; raises TryLater.
    """

    def __init__(
        self, reporter: Reporter, clock: Clock, *, catch_up: Callable[[], Awaitable[None]]
    ) -> None:
        self._reporter = reporter
        self._clock = clock
        self._catch_up = catch_up
        #: When the newest completed reading began, monotonic.
        self._caught_up_at = -math.inf
        self._announced: dict[tuple[str, str], _Announced] = {}

    def announce(self, event: RunEvent, ack: Acknowledgement | None) -> None:
        """The Job of this run is about to be deleted."""
        if ack is not None:
            ack.expect()
        self.forget(event.uid, event.job_name)
        self._announced[event.uid, event.job_name] = _Announced(event, ack)

    def runs(self) -> list[RunEvent]:
        """The announced replacements whose Jobs have not gone yet."""
        return [announced.event for announced in self._announced.values()]

    def forget(self, schedule_uid: str, job_name: str) -> None:
        """The run has ended otherwise, or its end was reported."""
        announced = self._announced.pop((schedule_uid, job_name), None)
        if announced is not None and announced.ack is not None:
            announced.ack.settle()

    async def end(self, gone: RunEvent, seen_at: float) -> None:
        """Report the end of a run whose Job went away before its end was seen; raises TryLater.

        Args:
            gone: how the run has ended, unless the Job was replaced.
            seen_at: when the Job was known to be gone, monotonic.
        """
        key = gone.uid, gone.job_name
        if key not in self._announced and self._caught_up_at <= seen_at:
            began_at = self._clock.monotonic()
            await self._catch_up()
            self._caught_up_at = max(self._caught_up_at, began_at)
        announced = self._announced.get(key)
        if announced is None:
            self._reporter.event(gone)
            return
        replaced = msgspec.structs.replace(
            gone, state=RunState.REPLACED, reason=Reason.REPLACED, message=announced.event.message
        )
        # The watch ends no slot in the queue, so the event counts as one of a lost claim.
        self._reporter.event(replaced, ack=announced.ack, is_lost=True)
        self.forget(*key)
