"""The reconciler of Jobs: ``sync`` acts on the Jobs of one Schedule.

It tells the queue which Jobs have ended, ends runs whose Jobs disappeared, deletes finished Jobs
beyond the history limits, and reports why Jobs get no Pods. In a calm cluster it sends no request.

*Ended.* When a Job ends, a slot that waits for it becomes due at once. A Schedule that allows
concurrent runs skips this, unless a ScheduleRun waits all the same. An edit that allows more runs
makes every waiting slot due. Correctness does not depend on this: a worker checks the Jobs itself
before it refuses a slot, and a waiting slot is retried anyway.

*Disappeared.* If the watch shows that a Job was deleted or released while it ran, its end is
reported a second later: Kubernetes deletes the Jobs of a deleted Schedule, and the watch of Jobs
may be ahead of the watch of Schedules. If a status or a worker names a Job that the watch does not
show, the operator reads it once, after the watch had time to catch up; a Job that does not exist
counts as failed. A worker that replaces a Job reports that among the outcomes before it deletes the
Job. So before a run counts as failed because its Job is gone, every outcome up to then is read:
otherwise a Job that Duepoint replaced could be taken for one that a user deleted. One reading of
the outcomes serves all Jobs that were gone when it began.

*Beyond the limits.* See ``history``: a Job is the proof that its slot ran.

*Without Pods.* The Job controller retries for ever when its Pods are refused, and neither the Job
nor its owner shows that. After a while we read the reason from the Job controller's Events about
the oldest such Job, and again, ever less often, until it has Pods, has ended or is gone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from duepoint import faults, telemetry
from duepoint.controller import inventory
from duepoint.controller.jobs import history, jobstate
from duepoint.controller.jobs.jobstate import JobCache, OwnedJob
from duepoint.controller.status import events as changes
from duepoint.controller.status.texts import instant
from duepoint.controller.term import RunningJob, TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import overlaps
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, pods
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason

_WORKERS = 4
#: One watch may lag the other by this. Shorter than a status waits, or each would cost two writes.
GRACE_SECONDS = 1.0
#: Within this time a working watch shows a new Job, and a working Job controller creates its Pods.
PATIENCE_SECONDS = 30.0
#: The wait between two readings of why a Job has no Pods; it grows with the Job's age.
_LEAST_REFUSED_SECONDS, _MOST_REFUSED_SECONDS = 60.0, 600.0
#: Characters of the Job controller's message.
_MESSAGE_LIMIT = 600


@dataclass(frozen=True, slots=True)
class _Absent:
    """A Job that the watch saw disappear, or that it does not show.

    Attributes:
        not_before: when to report its end, or to read it, monotonic.
        gone: the end of its run, if the watch saw it disappear; unless the Job was replaced.
    """

    run: RunningJob
    not_before: float
    gone: RunEvent | None = None


@dataclass(slots=True)
class _Todo:
    """The pending work for the Jobs of one Schedule.

    Attributes:
        ended: names of Jobs that have ended or are gone; an empty name = some Job.
        is_wider: whether an edit allows more runs.
        absent: absent Jobs by name.
    """

    ended: set[str] = field(default_factory=set)
    is_wider: bool = False
    absent: dict[str, _Absent] = field(default_factory=dict)


class JobSync:
    """The service; one for each term of a leader.

    Attributes:
        late: the late requests that may still create a Job again.
    """

    def __init__(self, term: TermContext, cache: JobCache) -> None:
        self._term = term
        self._cache = cache
        self._states = term.services.states
        self._reporter = term.services.reporter
        self.late = history.LateRequests()
        #: When the newest completed reading of outcomes began, monotonic.
        self._caught_up_at = -math.inf
        self._todo: dict[str, _Todo] = {}
        self._work: WorkQueue[str] = WorkQueue(
            term.clock, "jobs not synced", ends=(queue_errors.Fenced,)
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run(self.sync, _WORKERS)

    # -- requesting work ---------------------------------------------------------------------------

    def _todo_of(self, schedule_uid: str) -> _Todo:
        self._work.put(schedule_uid, schedule_uid)
        return self._todo.setdefault(schedule_uid, _Todo())

    def look(self, schedule_uid: str) -> None:
        """Request a check for Jobs of this Schedule to delete."""
        if self._finished(schedule_uid):
            self._work.put(schedule_uid, schedule_uid)

    def job_ended(self, schedule_uid: str, job_name: str) -> None:
        """Record that a Job has ended or is gone; an empty name = some Job of this Schedule."""
        self._todo_of(schedule_uid).ended.add(job_name)

    def widen(self, schedule_uid: str) -> None:
        """Record that an edit allows more runs of this Schedule."""
        self._todo_of(schedule_uid).is_wider = True

    def record_gone(self, event: RunEvent) -> None:
        """Record that the Job of this run was deleted or released before it had ended."""
        not_before = self._term.clock.monotonic() + GRACE_SECONDS
        gone = _Absent(RunningJob.of_event(event), not_before, event)
        self._todo_of(event.uid).absent[event.job_name] = gone

    def look_for(
        self, runs: Iterable[RunningJob], *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Request a read of those running Jobs among these that the watch does not show."""
        not_before = self._term.clock.monotonic() + patience_seconds
        for run in runs:
            if not self._cache.is_active(_owner(run), run.job_name):
                absent = self._todo_of(run.uid).absent
                if run.job_name not in absent or absent[run.job_name].gone is None:
                    absent[run.job_name] = _Absent(run, not_before)

    def look_at_pods(self, schedule_uid: str) -> None:
        """Request a check for missing Pods, because a Job of this Schedule has changed."""
        if self._states.lacks_pods(schedule_uid) or self._without_pods(schedule_uid) is not None:
            self._work.put(schedule_uid, schedule_uid)

    # -- one Schedule ------------------------------------------------------------------------------

    async def sync(self, schedule_uid: str) -> float | None:
        """Do the pending work for this Schedule's Jobs; return seconds until the next sync."""
        todo = self._todo.setdefault(schedule_uid, _Todo())
        await self._tell_queue(schedule_uid, todo)
        waits = [
            await self._end_absent(todo),
            await self._clean(schedule_uid),
            await self._ask_about_pods(schedule_uid),
        ]
        if not (todo.ended or todo.is_wider or todo.absent):
            self._todo.pop(schedule_uid, None)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _tell_queue(self, schedule_uid: str, todo: _Todo) -> None:
        ended, is_wider = set(todo.ended), todo.is_wider
        if not ended and not is_wider:
            return
        known = await self._states.definition(schedule_uid)
        if known is not None:
            is_limited = known.rule.policy.concurrency != overlaps.ALLOW
            has_waiting = self._term.services.runs.has_waiting
            if is_wider or is_limited or has_waiting(known):
                await self._term.queue.concurrency.finish(known, ended, every=is_wider)
        todo.ended -= ended
        todo.is_wider = todo.is_wider and not is_wider

    async def _end_absent(self, todo: _Todo) -> float | None:
        wait: float | None = None
        for name, absent in list(todo.absent.items()):
            now = self._term.clock.monotonic()
            if (left := absent.not_before - now) > 0:
                wait = left if wait is None else min(wait, left)
                continue
            seen_at = now if absent.gone is None else absent.not_before - GRACE_SECONDS
            gone = absent.gone or await self._look_for(absent.run)
            if gone is not None:
                await self._end(gone, seen_at)
            if todo.absent.get(name) is absent:
                del todo.absent[name]
        return wait

    async def _look_for(self, run: RunningJob) -> RunEvent | None:
        """Read the Job; return the end of its run if there is no such Job."""
        if self._cache.is_active(_owner(run), run.job_name):
            return None
        if self._states.is_over(run):
            return None
        job = await jobs.find(self._term.api, run.namespace, run.job_name)
        if job is not None and jobs.is_run_of(job, _owner(run)):
            self._term.services.jobs.found(job)
            return None
        is_released = job is not None and jobs.is_released(job)
        why = jobstate.RELEASED if is_released else jobstate.LOST
        return jobstate.end_of_missing(run, why, self._term.clock.now_us())

    async def _end(self, gone: RunEvent, seen_at: float) -> None:
        """Report the end of a run whose Job disappeared before its end was seen; raises TryLater.

        Args:
            gone: the end of the run, unless the Job was replaced.
            seen_at: when the Job was known to be gone, monotonic.
        """
        named = gone.uid, gone.job_name
        if self._states.replacement(*named) is None and self._caught_up_at <= seen_at:
            began_at = self._term.clock.monotonic()
            await self._term.services.outcomes.catch_up()
            self._caught_up_at = max(self._caught_up_at, began_at)
        if (message := self._states.replacement(*named)) is not None:
            gone = msgspec.structs.replace(
                gone, state=RunState.REPLACED, reason=Reason.REPLACED, message=message
            )
        self._reporter.event(gone)

    # -- history -----------------------------------------------------------------------------------

    def _finished(self, schedule_uid: str) -> tuple[OwnedJob, ...]:
        owner = self._states.owner(schedule_uid)
        return () if owner is None else self._cache.finished(owner)

    async def _clean(self, schedule_uid: str) -> float | None:
        """Delete Jobs beyond the history limits; return seconds until the next check."""
        finished, now_us = self._finished(schedule_uid), self._term.clock.now_us()
        known = await self._states.definition(schedule_uid) if finished else None
        if known is None or not history.too_many(finished, known.rule.policy):
            return None
        held_us = await inventory.held_slots(self._term.queue, known)
        shown = self._states.published_jobs(schedule_uid)

        def is_over(job: OwnedJob) -> bool:
            if self._states.has_ended(schedule_uid, job.slot_us):
                return job.slot_us not in held_us
            return job.is_wanted and job.slot_us not in held_us

        def is_shown(job: OwnedJob) -> bool:
            keeps = self._term.services.runs.keeps
            return job.name not in shown and not keeps(job.namespace, job.name)

        deleted, again_after = history.sync(
            finished,
            known.rule.policy,
            is_over=is_over,
            is_shown=is_shown,
            stays_until_us=self.late.stays_until_us,
            now_us=now_us,
        )
        for job in deleted:
            await faults.reach(FaultPoint.BEFORE_JOB_DELETED)
            await jobs.delete(self._term.api, job.namespace, job.name, job.uid)
            await faults.reach(FaultPoint.AFTER_JOB_DELETED)
            self.late.record_gone(schedule_uid, job.name, job.uid, self._term.clock.now_us())
            job.is_leaving = True  # or the next sync would delete it again
        return again_after

    # -- Pods --------------------------------------------------------------------------------------

    def _without_pods(self, schedule_uid: str) -> OwnedJob | None:
        owner = self._states.owner(schedule_uid)
        return None if owner is None else self._cache.without_pods(owner)

    async def _ask_about_pods(self, schedule_uid: str) -> float | None:
        job = self._without_pods(schedule_uid)
        if job is None:
            if self._states.lacks_pods(schedule_uid):
                self._reporter.pods_refused(schedule_uid, None, "")
            return None
        age = (self._term.clock.now_us() - (job.without_pods_us or 0)) / 1e6
        if age < PATIENCE_SECONDS:
            return min(PATIENCE_SECONDS, PATIENCE_SECONDS - age)
        refusal = await self._refusal(job)
        if refusal is not None and self._without_pods(schedule_uid) is job:
            about = changes.job(job.namespace, job.name, job.uid)
            self._reporter.pods_refused(schedule_uid, about, _message(job, refusal))
        return min(max(age, _LEAST_REFUSED_SECONDS), _MOST_REFUSED_SECONDS)

    async def _refusal(self, job: OwnedJob) -> str | None:
        """Read the newest refusal of its Pods; "" = unknown, None = cannot be read now."""
        try:
            return await pods.newest_pod_refusal(self._term.api, job.namespace, job.uid)
        except kube_errors.Forbidden:
            return ""  # an older release's role lacks this right; report without the reason
        except kube_errors.ApiError as trouble:
            telemetry.logger.debug("refusals of pods not read", job=job.name, error=str(trouble))
            return None


def _owner(run: RunningJob) -> jobs.JobOwner:
    return jobs.JobOwner(run.namespace, run.schedule_name, run.uid)


def _message(job: OwnedJob, refusal: str) -> str:
    beginning = f"Job {job.name} has no Pod since {instant(job.without_pods_us or 0)}"
    if not refusal:
        look = f"kubectl describe job -n {job.namespace} {job.name}"
        return f"{beginning}; `{look}` may say why"
    # Leave the Pod's name out: it differs in each attempt, so every message would count as new.
    text = re.sub(rf' "{re.escape(job.name)}-[^"]*"', "", refusal.strip())[:_MESSAGE_LIMIT]
    advice = pods.pod_advice(refusal)
    return f"{beginning}: {text}; {advice}; it goes on by itself then, or delete the Job"
