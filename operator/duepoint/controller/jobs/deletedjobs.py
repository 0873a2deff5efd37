"""Runs whose Jobs went away before their end was seen.

Two ways lead here. The watch shows that a Job was deleted or released while it ran: its end is
reported a second later, because Kubernetes deletes the Jobs of a Schedule right after it, and the
watch of Jobs may be ahead of the watch of Schedules; the reporter ignores events of a Schedule that
is gone. Or a Job should be there, by a status or by a worker, and the watch does not show it, as
after a time in which no operator watched: it is looked for once, after the watch had time to catch
up, and a Job that does not exist has failed as far as is known. A calm cluster sees no request.

A worker reports a replacement before it deletes the Job, among the outcomes; what becomes of the
Job the watch shows. So before a run counts as failed because its Job is gone, every outcome up to
then is read: a Job that Duepoint replaced is never taken for one that a user deleted, whichever is
seen first. One reading serves all Jobs that were gone when it began: thousands may go at once. A
report stays unacknowledged until the Job is gone or has ended, so the next leader reads it again if
this one dies in between.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from duepoint.controller.jobs import jobevents
from duepoint.controller.jobs.jobstate import WatchedJobs
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import Acknowledgement, RunningJob, TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import jobs
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason

#: One watch may be behind the other by this; less than a status waits, or each would cost two.
GRACE_SECONDS = 1.0
#: A watch shows a new Job within this, or is broken.
PATIENCE_SECONDS = 30.0
_CHECKERS = 2


class DeletedJobs:
    """The service; one for each term of a leader.

    Args:
        observe: called with a Job that exists although the watch did not show it.
        catch_up: returns once every outcome up to the call has been reported; raises TryLater.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        watched: WatchedJobs,
        reporter: Reporter,
        observe: Callable[[jobs.Job], None],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._term = term
        self._watched = watched
        self._reporter = reporter
        self._observe = observe
        self._catch_up = catch_up
        #: When the newest completed reading of outcomes began, monotonic.
        self._caught_up_at = -math.inf
        #: Announced replacements whose Jobs have not gone yet, by the Schedule's uid and the Job.
        self._replacing: dict[tuple[str, str], tuple[RunEvent, Acknowledgement | None]] = {}
        #: Ends that wait for the watch of Schedules, with the monotonic time when they were seen.
        self._seen: WorkQueue[tuple[RunEvent, float]] = WorkQueue(
            term.clock, "end of a deleted job not reported yet"
        )
        #: Jobs that the watch does not show, and when to look for them.
        self._suspects: WorkQueue[tuple[RunningJob, float]] = WorkQueue(
            term.clock, "a missing job was not looked for"
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._seen.run(self._report, 1))
            group.create_task(self._suspects.run(self._look_for, _CHECKERS))

    # -- replacements ----------------------------------------------------------------------------

    def announce(self, event: RunEvent, ack: Acknowledgement | None) -> None:
        """A worker is about to delete the Job of this run in favour of a newer slot."""
        if ack is not None:
            ack.expect()
        self.forget_replacing(event.uid, event.job_name)
        self._replacing[event.uid, event.job_name] = event, ack
        self.look_for([RunningJob.of_event(event)], patience_seconds=GRACE_SECONDS)

    def forget_replacing(self, schedule_uid: str, job_name: str) -> None:
        """The run has ended otherwise, or its end was reported."""
        _, ack = self._replacing.pop((schedule_uid, job_name), (None, None))
        if ack is not None:
            ack.settle()

    def look_for_replaced(self) -> None:
        """All Jobs were listed: the replaced ones among them should be gone."""
        announced = [RunningJob.of_event(event) for event, _ in self._replacing.values()]
        self.look_for(announced, patience_seconds=0)

    # -- Jobs that went away ---------------------------------------------------------------------

    def record_gone(self, event: RunEvent) -> None:
        """The Job of this run was deleted or released before it had ended."""
        self._seen.put(event.job_uid, (event, self._term.clock.monotonic()))

    def look_for(
        self, runs: Iterable[RunningJob], *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """These are believed to be running; those that the watch does not show are looked for."""
        not_before = self._term.clock.monotonic() + patience_seconds
        for run in runs:
            if not self._watched.is_active(_owner(run), run.job_name):
                self._suspects.put(f"{run.namespace}/{run.job_name}", (run, not_before))

    async def _report(self, seen: tuple[RunEvent, float]) -> float | None:
        event, seen_at = seen
        wait = seen_at + GRACE_SECONDS - self._term.clock.monotonic()
        if wait > 0:
            return wait
        await self._end(event, seen_at)
        return None

    async def _look_for(self, suspect: tuple[RunningJob, float]) -> float | None:
        run, not_before = suspect
        wait = not_before - self._term.clock.monotonic()
        if wait > 0:
            return wait
        if self._watched.is_active(_owner(run), run.job_name):
            return None
        if self._reporter.states.is_over(run):
            self.forget_replacing(run.uid, run.job_name)
            return None
        job = await jobs.find(self._term.api, run.namespace, run.job_name)
        if job is not None and jobs.is_run_of(job, _owner(run)):
            self._observe(job)
            return None
        is_released = job is not None and jobs.is_released(job)
        why = jobevents.RELEASED if is_released else jobevents.LOST
        event = jobevents.missing(run, why, self._term.clock.now_us())
        await self._end(event, self._term.clock.monotonic())
        return None

    async def _end(self, gone: RunEvent, seen_at: float) -> None:
        """Report the end of a run whose Job went away before its end was seen; raises TryLater.

        Args:
            gone: how the run has ended, unless the Job was replaced.
            seen_at: when the Job was known to be gone, monotonic.
        """
        key = gone.uid, gone.job_name
        if key not in self._replacing and self._caught_up_at <= seen_at:
            began_at = self._term.clock.monotonic()
            await self._catch_up()
            self._caught_up_at = max(self._caught_up_at, began_at)
        if key not in self._replacing:
            self._reporter.event(gone)
            return
        announced, ack = self._replacing[key]
        replaced = msgspec.structs.replace(
            gone, state=RunState.REPLACED, reason=Reason.REPLACED, message=announced.message
        )
        # The watch ends no slot in the queue, so the event counts as one of a lost claim.
        self._reporter.event(replaced, ack=ack, is_lost=True)
        self.forget_replacing(*key)


def _owner(run: RunningJob) -> jobs.JobOwner:
    return jobs.JobOwner(run.namespace, run.schedule_name, run.uid)
