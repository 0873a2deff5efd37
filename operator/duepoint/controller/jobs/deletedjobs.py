"""Runs whose Jobs went away before their end was seen.

Two ways lead here. The watch shows that a Job was deleted or released while it ran: its end is
reported a second later, because Kubernetes deletes the Jobs of a Schedule right after it, and the
watch of Jobs may be ahead of the watch of Schedules; the reporter ignores events of a Schedule that
is gone. Or a Job should be there, by a status or by a worker, and the watch does not show it, as
after a time in which no operator watched: it is looked for once, after the watch had time to catch
up, and a Job that does not exist has failed as far as is known. A calm cluster sees no request.

Every such end passes ``Replacements``, which knows the Jobs that Duepoint deleted itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs import jobevents
from duepoint.controller.jobs.jobstate import WatchedJobs
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.term import Acknowledgement, RunningJob, TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason


@dataclass(frozen=True, slots=True)
class _Announced:
    """A replacement that a worker has announced."""

    event: RunEvent
    ack: Acknowledgement | None


class Replacements:
    """The Jobs that a worker deletes in favour of a newer slot; one for each term of a leader.

    The worker reports a replacement before it deletes the Job, among the outcomes; what becomes of
    the Job the watch shows. So before a run counts as failed because its Job is gone, every outcome
    up to then is read: a Job that Duepoint replaced is never taken for one that a user deleted,
    whichever is seen first. One reading serves all Jobs that were gone when it began: thousands may
    go at once. A report stays unacknowledged until the Job is gone or has ended, so the next leader
    reads it again if this one dies in between.

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
        term: TermContext,
        *,
        watched: WatchedJobs,
        states: ScheduleStates,
        replacements: Replacements,
        observe: Callable[[jobs.Job], None],
    ) -> None:
        self._api = term.api
        self._clock = term.clock
        self._watched = watched
        self._states = states
        self._replacements = replacements
        self._observe = observe
        self._waits: dict[str, Iterator[float]] = {}
        self._seen: WorkQueue[_Seen] = WorkQueue(term.clock)
        self._suspects: WorkQueue[_Suspect] = WorkQueue(term.clock)

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


def _owner(run: RunningJob) -> jobs.Owner:
    return jobs.Owner(run.namespace, run.schedule_name, run.uid)
