"""Runs whose Jobs went away before their end was seen.

Two ways lead here. The watch shows that a Job was deleted or released while it ran: its end is
reported a second later, because Kubernetes deletes the Jobs of a Schedule right after it, and the
watch of Jobs may be ahead of the watch of Schedules; the reporter ignores events of a Schedule that
is gone. Or a Job should be there, by a status or by a worker, and the watch does not show it, as
after a time in which no operator watched: it is looked for once, after the watch had time to catch
up, and a Job that does not exist has failed as far as is known. A calm cluster sees no request.

Every such end passes ``replacements``, which knows the Jobs that Duepoint deleted itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs import jobevents
from duepoint.controller.jobs.jobstate import WatchedJobs
from duepoint.controller.jobs.replacements import Replacements
from duepoint.controller.runningjobs import RunningJob
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, port
from duepoint.runs.run import RunEvent

#: One watch may be behind the other by this; less than a status waits, or each would cost two.
GRACE_SECONDS = 1.0
#: A watch shows a new Job within this, or is broken.
PATIENCE_SECONDS = 30.0
_CHECKERS = 2


@dataclass(frozen=True, slots=True)
class _Seen:
    """An end that waits for the watch of Schedules."""

    event: RunEvent
    seen_at: float


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A Job that the watch does not show."""

    run: RunningJob
    not_before: float


class DeletedJobs:
    """The service; one for each term of a leader.

    Args:
        observe: called with a Job that exists although the watch did not show it.
    """

    def __init__(
        self,
        *,
        api: port.Api,
        clock: Clock,
        watched: WatchedJobs,
        states: ScheduleStates,
        replacements: Replacements,
        observe: Callable[[jobs.Job], None],
    ) -> None:
        self._api = api
        self._clock = clock
        self._watched = watched
        self._states = states
        self._replacements = replacements
        self._observe = observe
        self._waits: dict[str, Iterator[float]] = {}
        self._seen: WorkQueue[_Seen] = WorkQueue(clock)
        self._suspects: WorkQueue[_Suspect] = WorkQueue(clock)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._seen.run(self._report, 1))
            group.create_task(self._suspects.run(self._look_for, _CHECKERS))

    def record_gone(self, event: RunEvent) -> None:
        """The Job of this run was deleted or released before it had ended."""
        self._seen.put(event.job_uid, _Seen(event, self._clock.monotonic()))

    def look_for(
        self, runs: Iterable[RunningJob], *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """These are believed to be running; those that the watch does not show are looked for."""
        for run in runs:
            if not self._watched.is_active(_owner(run), run.job_name):
                not_before = self._clock.monotonic() + patience_seconds
                self._suspects.put(f"{run.namespace}/{run.job_name}", _Suspect(run, not_before))

    async def _report(self, seen: _Seen) -> float | None:
        wait = seen.seen_at + GRACE_SECONDS - self._clock.monotonic()
        if wait > 0:
            return wait
        job_uid = seen.event.job_uid
        try:
            await self._replacements.end(seen.event, seen.seen_at)
        except errors.TryLater as trouble:
            telemetry.logger.debug("end of a deleted job not reported yet", error=str(trouble))
            waits = services.backoff(first_seconds=0.5, most_seconds=30.0)
            return next(self._waits.setdefault(job_uid, waits))
        self._waits.pop(job_uid, None)
        return None

    async def _look_for(self, suspect: _Suspect) -> float | None:
        run = suspect.run
        wait = suspect.not_before - self._clock.monotonic()
        if wait > 0:
            return wait
        if self._watched.is_active(_owner(run), run.job_name):
            return None
        if self._states.is_over(run):
            self._replacements.forget(run.uid, run.job_name)
            return None
        try:
            job = await jobs.find(self._api, run.namespace, run.job_name)
            if job is not None and jobs.is_run_of(job, _owner(run)):
                self._observe(job)
                return None
            is_released = job is not None and jobs.is_released(job)
            why = jobevents.RELEASED if is_released else jobevents.LOST
            event = jobevents.missing(run, why, self._clock.now_us())
            await self._replacements.end(event, self._clock.monotonic())
        except (kube_errors.ApiError, errors.TryLater) as trouble:
            telemetry.logger.debug("a missing job was not looked for", error=str(trouble))
            return PATIENCE_SECONDS
        return None


def _owner(run: RunningJob) -> jobs.JobOwner:
    return jobs.JobOwner(run.namespace, run.schedule_name, run.uid)
