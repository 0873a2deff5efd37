"""The reconciler of Jobs: ``sync`` acts on the Jobs of one Schedule.

It tells the queue which Jobs have ended, ends runs whose Jobs disappeared, deletes finished Jobs
beyond the history limits, and reports why Jobs get no Pods. In a calm cluster it sends no request.

*Ended.* When a Job ends, a slot that waits for it becomes due at once. An edit that allows more
runs makes every waiting slot due. Correctness does not depend on this: a worker checks the Jobs
itself before it refuses a slot, and a waiting slot is retried anyway.

*Disappeared.* Each sync compares the active runs with the Jobs that the watch shows. A Job that the
watch does not show is read a second later: Kubernetes deletes the Jobs of a deleted Schedule, and
the watch of Jobs may be ahead of the watch of Schedules. One that has ended is read at once. If the
Job does not exist, or was released, its run counts as failed. A worker that replaces a Job reports
that among the outcomes before it deletes the Job, so every outcome up to then is read first:
otherwise a Job that Duepoint replaced could be taken for one that a user deleted.

*Beyond the limits.* See ``history``: a Job is the proof that its slot ran.

*Without Pods.* The Job controller retries for ever when its Pods are refused, and neither the Job
nor its owner shows that. After a while we read the reason from the Job controller's Events about
the oldest such Job, and again, ever less often, until it has Pods, has ended or is gone.
"""

from __future__ import annotations

import re

from duepoint import faults
from duepoint.controller.jobs import history, jobstate
from duepoint.controller.jobs.jobstate import JobCache, OwnedJob
from duepoint.controller.status import events as changes
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.status.texts import instant
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import sharding
from duepoint.faults import FaultPoint
from duepoint.kube import jobs, pods
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.summary import Key
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

_WORKERS = 4
#: One watch may lag the other by this. Shorter than a status waits, or each would cost two writes.
GRACE_SECONDS = 1.0
#: The wait for a slot to be settled after its Job has ended; it mostly takes moments.
_AGAIN_SECONDS = 30.0
#: Within this time a working Job controller creates the Pods of a new Job.
PATIENCE_SECONDS = 30.0
#: The wait between two readings of why a Job has no Pods; it grows with the Job's age.
_LEAST_REFUSED_SECONDS, _MOST_REFUSED_SECONDS = 60.0, 600.0
#: Characters of the Job controller's message.
_MESSAGE_LIMIT = 600


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
        #: By Schedule: names of Jobs that have ended; an empty name = more runs may start.
        self._ended: dict[str, set[str]] = {}
        #: By Schedule: Jobs of active runs that the watch does not show, and since when.
        self._absent: dict[str, dict[str, float]] = {}
        self._work: WorkQueue[str] = WorkQueue(
            term.clock, "jobs not synced", ends=(queue_errors.Fenced,)
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run(self.sync, _WORKERS)

    # -- requesting work ---------------------------------------------------------------------------

    def request(self, schedule_uid: str) -> None:
        """Request a sync: a Job of this Schedule, or what is known of its runs, has changed."""
        state = self._states.get(schedule_uid)
        if state is not None and (
            state.refused_pods or self._cache.of(state.owner) or state.running_jobs()
        ):
            self._work.put(schedule_uid, schedule_uid)

    def job_ended(self, schedule_uid: str, job_name: str) -> None:
        """Record that a Job has ended or is gone; an empty name = more runs may start."""
        self._ended.setdefault(schedule_uid, set()).add(job_name)
        self._work.put(schedule_uid, schedule_uid)

    # -- one Schedule ------------------------------------------------------------------------------

    async def sync(self, schedule_uid: str) -> float | None:
        """Make the Jobs of this Schedule and its runs agree; return seconds until the next sync."""
        await self._tell_queue(schedule_uid)
        waits = [
            await self._end_absent(schedule_uid),
            await self._clean(schedule_uid),
            await self._read_pods(schedule_uid),
        ]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _tell_queue(self, schedule_uid: str) -> None:
        if not (ended := self._ended.pop(schedule_uid, None)):
            return
        try:
            if (known := await self._reporter.definition(schedule_uid)) is not None:
                await self._term.queue.concurrency.finish(known, ended, every="" in ended)
        except BaseException:
            self._ended.setdefault(schedule_uid, set()).update(ended)
            raise

    async def _end_absent(self, schedule_uid: str) -> float | None:
        """End the active runs whose Jobs are gone; return seconds until the next one is due."""
        state, now, waits = self._states.get(schedule_uid), self._term.clock.monotonic(), []
        former = self._absent.pop(schedule_uid, {})
        # If the Schedule is gone, its runs are nobody's; its ScheduleRuns end with it.
        for key, name in [] if state is None else state.running_jobs():
            assert state is not None  # noqa: S101 - it has active runs
            known = self._cache.find(state.owner, name)
            if known is not None and known.succeeded is None:
                continue
            since = former.get(name, now)
            if known is None and (left := since + GRACE_SECONDS - now) > 0:
                self._absent.setdefault(schedule_uid, {})[name] = since
                waits.append(left)
            else:
                await self._end(state, key, name, round((now - since) * 1e6))
        return min(waits, default=None)

    async def _end(self, state: ScheduleState, run: Key, job_name: str, ago_us: int) -> None:
        """Report the end of a run whose Job is gone, or what a read shows; raises TryLater."""
        job = await jobs.find(self._term.api, state.namespace, job_name)
        if job is not None and jobs.is_run_of(job, state.owner):
            self._term.services.jobs.found(job)
            return
        await self._term.services.outcomes.catch_up()
        slot_us, wanted_by = run
        at_us = self._term.clock.now_us() - ago_us
        replaced = state.runs().replacing.get(job_name)
        self._reporter.event(
            RunEvent(
                uid=state.uid,
                namespace=state.namespace,
                name=state.name,
                generation=0,
                slot_us=slot_us,
                trigger="Manual" if wanted_by else "Schedule",
                state=RunState.FAILED if replaced is None else RunState.REPLACED,
                reason=Reason.DELETED if replaced is None else Reason.REPLACED,
                message=replaced or (jobstate.LOST if job is None else jobstate.RELEASED),
                at_us=at_us,
                started_us=slot_us,  # so that it does not become the newest run
                finished_us=at_us,
                job_name=job_name,
            )
        )

    async def _clean(self, schedule_uid: str) -> float | None:
        """Delete Jobs beyond the history limits; return seconds until the next check.

        The next status that shows an end causes another check.
        """
        state, now_us = self._states.get(schedule_uid), self._term.clock.now_us()
        if state is None:
            return None
        owned = self._cache.of(state.owner)
        finished = [job for job in owned if job.succeeded is not None and not job.is_leaving]
        known = await self._reporter.definition(schedule_uid) if finished else None
        if known is None or not (beyond := history.too_many(finished, known.rule.policy)):
            return None
        queue = self._term.queue
        held_us = {  # slots that will be tried (again), of any kind
            point.slot_us
            for shard in sharding.homes(known.id, queue.layouts.known())
            async for point, _ in queue.occurrences.all_occurrences(shard, of=known.id)
            if point.kind in points.TRIED_KINDS
        }
        shown_running = state.running_jobs_shown()
        keeps = self._term.services.runs.keeps
        waits: list[float] = []
        for job in beyond:
            has_ended = job.is_wanted or state.has_ended(job.slot_us)
            if not has_ended or job.slot_us in held_us:
                waits.append(_AGAIN_SECONDS)
            elif job.name in shown_running or keeps(job.namespace, job.name):
                continue
            elif (left_us := self.late.stays_until_us(job) - now_us) > 0:
                waits.append(min(max(left_us / 1e6, 0.1), _AGAIN_SECONDS))
            else:
                await self._delete(job)
        return min(waits, default=None)

    async def _delete(self, job: OwnedJob) -> None:
        await faults.reach(FaultPoint.BEFORE_JOB_DELETED)
        await jobs.delete(self._term.api, job.namespace, job.name, job.uid)
        await faults.reach(FaultPoint.AFTER_JOB_DELETED)
        self.late.record_gone(job.owner.uid, job.name, job.uid, self._term.clock.now_us())
        job.is_leaving = True  # or the next sync would delete it again

    # -- Pods --------------------------------------------------------------------------------------

    async def _read_pods(self, schedule_uid: str) -> float | None:
        """Report why the oldest Job without Pods has none; return seconds until the next look."""
        state = self._states.get(schedule_uid)
        owned = [] if state is None else self._cache.of(state.owner)
        waiting = [(job.without_pods_us, job.name, job) for job in owned if job.without_pods_us]
        if not waiting:
            self._reporter.pods_refused(schedule_uid, None, "")
            return None
        since_us, _, job = min(waiting, key=lambda one: one[:2])
        age = (self._term.clock.now_us() - since_us) / 1e6
        if age < PATIENCE_SECONDS:
            return min(PATIENCE_SECONDS, PATIENCE_SECONDS - age)
        refusal = await pods.newest_pod_refusal(self._term.api, job.namespace, job.uid)
        if job.without_pods_us is not None:  # it did not get one meanwhile
            about = changes.job(job.namespace, job.name, job.uid)
            self._reporter.pods_refused(schedule_uid, about, _message(job, refusal))
        return min(max(age, _LEAST_REFUSED_SECONDS), _MOST_REFUSED_SECONDS)


def _message(job: OwnedJob, refusal: str) -> str:
    beginning = f"Job {job.name} has no Pod since {instant(job.without_pods_us or 0)}"
    if not refusal:
        look = f"kubectl describe job -n {job.namespace} {job.name}"
        return f"{beginning}; `{look}` may say why"
    # Leave the Pod's name out: it differs in each attempt, so every message would count as new.
    text = re.sub(rf' "{re.escape(job.name)}-[^"]*"', "", refusal.strip())[:_MESSAGE_LIMIT]
    advice = pods.pod_advice(refusal)
    return f"{beginning}: {text}; {advice}; it goes on by itself then, or delete the Job"
