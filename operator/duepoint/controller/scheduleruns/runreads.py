"""ScheduleRuns of which the watch shows a change, read and handed on.

The watch brings metadata only. A deletion needs no more; a run that is followed already changes by
our own status writes and is not read again. Every other one is read, as it is at least as new as
the change, by a few workers; one that cannot be read is tried again with backoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from duepoint import services, telemetry
from duepoint.clock import Clock
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import observed
from duepoint.controller.scheduleruns.observed import ObservedRun
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import errors, port, schedules

_READERS = 8


class RunReads:
    """The service; one for each term of a leader.

    Args:
        is_wanted: whether a change, which is no deletion, is to be read.
        offer: takes what was read, and what is gone.
    """

    def __init__(
        self,
        *,
        api: port.Api,
        is_wanted: Callable[[Observed], bool],
        offer: Callable[[ObservedRun], None],
        clock: Clock,
    ) -> None:
        self._api = api
        self._is_wanted = is_wanted
        self._offer = offer
        self._reads: WorkQueue[Observed] = WorkQueue(clock)
        self._waits: dict[str, Iterator[float]] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        await self._reads.run(self._read, _READERS)

    def observe(self, seen: Observed) -> None:
        """The watch shows this version of a ScheduleRun, without its texts."""
        if seen.deleted:
            self._offer(observed.of_deleted(seen))
        elif self._is_wanted(seen):
            self._reads.put(seen.uid, seen)

    async def _read(self, seen: Observed) -> float | None:
        if not self._is_wanted(seen):
            return None
        try:
            run = await schedules.read_run(
                self._api, seen.namespace, seen.name, not_before=seen.version
            )
        except errors.ApiError as trouble:
            telemetry.logger.warning("scheduleRun not read", run=seen.identity, error=str(trouble))
            waits = services.backoff(first_seconds=0.5, most_seconds=30.0)
            return next(self._waits.setdefault(seen.uid, waits))
        self._waits.pop(seen.uid, None)
        if run is not None and run.metadata.uid == seen.uid:
            self._offer(observed.of_object(run))
        return None
