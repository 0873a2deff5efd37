"""The reconciler of Jobs: ``sync`` acts on the Jobs of one Schedule.

It tells the queue which Jobs have ended, ends runs whose Jobs disappeared, deletes finished Jobs
beyond the history limits, and reports why Jobs get no Pods. In a calm cluster it sends no request.

*Ended.* When a Job ends, a slot that waits for it becomes due at once. A Schedule that allows
concurrent runs skips this, unless a ScheduleRun waits all the same. An edit that allows more runs
makes every waiting slot due. Correctness does not depend on this: a worker checks the Jobs itself
before it refuses a slot, and a waiting slot is retried anyway.

*Disappeared.* Each sync compares the active runs with the Jobs that the watch shows. If it saw that
a Job was deleted or released while it ran, its end is reported a second later: Kubernetes deletes
the Jobs of a deleted Schedule, and the watch of Jobs may be ahead of the watch of Schedules. A Job
that the watch does not show is read once, after the watch had time to catch up, and one that has
ended at once; a Job that does not exist counts as failed. A worker that replaces a Job reports that
among the outcomes before it deletes the Job. So before a run counts as failed because its Job is
gone, every outcome up to then is read: otherwise a Job that Duepoint replaced could be taken for
one that a user deleted.

*Beyond the limits.* See ``history``: a Job is the proof that its slot ran.

*Without Pods.* The Job controller retries for ever when its Pods are refused, and neither the Job
nor its owner shows that. After a while we read the reason from the Job controller's Events about
the oldest such Job, and again, ever less often, until it has Pods, has ended or is gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from duepoint import faults, telemetry
from duepoint.controller.jobs import history, jobstate
from duepoint.controller.jobs.jobstate import JobCache, OwnedJob
from duepoint.controller.status import events as changes
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.status.texts import instant
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import overlaps, sharding
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, pods
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

_WORKERS = 4
#: One watch may lag the other by this. Shorter than a status waits, or each would cost two writes.
GRACE_SECONDS = 1.0
#: The wait for a slot to be settled after its Job has ended; it mostly takes moments.
_AGAIN_SECONDS = 30.0
#: Within this time a working watch shows a new Job, and a working Job controller creates its Pods.
PATIENCE_SECONDS = 30.0
#: The wait between two readings of why a Job has no Pods; it grows with the Job's age.
_LEAST_REFUSED_SECONDS, _MOST_REFUSED_SECONDS = 60.0, 600.0
#: Characters of the Job controller's message.
_MESSAGE_LIMIT = 600


@dataclass(frozen=True, slots=True)
class _Absent:
    """A running Job that the watch does not show as active.

    Attributes:
        since: since when, monotonic.
        why: why its run has ended at ``at_us``, if the watch saw it disappear; "" = read the Job.
        started_us: when it was created; 0 = unknown.
    """

    since: float
    why: str = ""
    at_us: int = 0
    started_us: int = 0


@dataclass(slots=True)
class _Todo:
    """The pending work for the Jobs of one Schedule.

    Attributes:
        ended: names of Jobs that have ended or are gone; an empty name = some Job.
        is_wider: whether an edit allows more runs.
        absent: absent Jobs of active runs, by name.
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
        self._todo: dict[str, _Todo] = {}
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

    def _todo_of(self, schedule_uid: str) -> _Todo:
        self._work.put(schedule_uid, schedule_uid)
        return self._todo.setdefault(schedule_uid, _Todo())

    def job_ended(self, schedule_uid: str, job_name: str) -> None:
        """Record that a Job has ended or is gone; an empty name = some Job of this Schedule."""
        self._todo_of(schedule_uid).ended.add(job_name)

    def widen(self, schedule_uid: str) -> None:
        """Record that an edit allows more runs of this Schedule."""
        self._todo_of(schedule_uid).is_wider = True

    def gone(self, job: OwnedJob, why: str) -> None:
        """Record that the watch saw an active Job disappear, and why its run has ended."""
        clock = self._term.clock
        absent = _Absent(clock.monotonic(), why, clock.now_us(), job.created_us)
        self._todo_of(job.owner.uid).absent[job.name] = absent

    # -- one Schedule ------------------------------------------------------------------------------

    async def sync(self, schedule_uid: str) -> float | None:
        """Make the Jobs of this Schedule and its runs agree; return seconds until the next sync."""
        todo = self._todo.setdefault(schedule_uid, _Todo())
        await self._tell_queue(schedule_uid, todo)
        waits = [
            await self._end_absent(schedule_uid, todo),
            await self._clean(schedule_uid),
            await self._read_pods(schedule_uid),
        ]
        if not (todo.ended or todo.is_wider or todo.absent):
            self._todo.pop(schedule_uid, None)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _tell_queue(self, schedule_uid: str, todo: _Todo) -> None:
        ended, is_wider = set(todo.ended), todo.is_wider
        if not ended and not is_wider:
            return
        known = await self._reporter.definition(schedule_uid)
        if known is not None:
            is_limited = known.rule.policy.concurrency != overlaps.ALLOW
            has_waiting = self._term.services.runs.has_waiting
            if is_wider or is_limited or has_waiting(known):
                await self._term.queue.concurrency.finish(known, ended, every=is_wider)
        todo.ended -= ended
        todo.is_wider = todo.is_wider and not is_wider

    async def _end_absent(self, schedule_uid: str, todo: _Todo) -> float | None:
        """End the active runs whose Jobs are gone; return seconds until the next one is due."""
        state, now, waits = self._states.get(schedule_uid), self._term.clock.monotonic(), []
        # If the Schedule is gone, its runs are nobody's; its ScheduleRuns end with it.
        running = {} if state is None else {job: key for key, job in state.running_jobs()}
        todo.absent = {name: one for name, one in todo.absent.items() if name in running}
        for name, (slot_us, wanted_by) in running.items():
            assert state is not None  # noqa: S101 - it has active runs
            known = self._cache.find(state.owner, name)
            if known is not None and known.succeeded is None:
                todo.absent.pop(name, None)
                continue
            absent = todo.absent.setdefault(name, _Absent(now))
            is_told = absent.why or name in state.runs().replacing
            wait = GRACE_SECONDS if is_told else PATIENCE_SECONDS
            if known is None and (left := absent.since + wait - now) > 0:
                waits.append(left)
                continue
            run = jobstate.unseen_end(
                state.owner, slot_us, name, is_wanted=bool(wanted_by), started_us=absent.started_us
            )
            await self._end(state, run, absent)
            todo.absent.pop(name, None)
        return min(waits, default=None)

    async def _end(self, state: ScheduleState, run: RunEvent, absent: _Absent) -> None:
        """Report the end of a run whose Job is gone, or what a read shows; raises TryLater."""
        why, at_us = absent.why, absent.at_us
        if not why:
            job = await jobs.find(self._term.api, run.namespace, run.job_name)
            if job is not None and jobs.is_run_of(job, state.owner):
                self._term.services.jobs.found(job)
                return
            is_released = job is not None and jobs.is_released(job)
            why = jobstate.RELEASED if is_released else jobstate.LOST
            at_us = self._term.clock.now_us()
        if run.job_name not in state.runs().replacing:
            await self._term.services.outcomes.catch_up()
        ended = msgspec.structs.replace(run, message=why, at_us=at_us, finished_us=at_us)
        if (message := state.runs().replacing.get(run.job_name)) is not None:
            ended = msgspec.structs.replace(
                ended, state=RunState.REPLACED, reason=Reason.REPLACED, message=message
            )
        self._reporter.event(ended)

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

    def _without_pods(self, schedule_uid: str) -> OwnedJob | None:
        state = self._states.get(schedule_uid)
        return None if state is None else self._cache.without_pods(state.owner)

    async def _read_pods(self, schedule_uid: str) -> float | None:
        job = self._without_pods(schedule_uid)
        if job is None:
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
        except kube_errors.ApiError as trouble:
            telemetry.logger.debug("refusals of pods not read", job=job.name, error=str(trouble))
            return None


def _message(job: OwnedJob, refusal: str) -> str:
    beginning = f"Job {job.name} has no Pod since {instant(job.without_pods_us or 0)}"
    if not refusal:
        look = f"kubectl describe job -n {job.namespace} {job.name}"
        return f"{beginning}; `{look}` may say why"
    # Leave the Pod's name out: it differs in each attempt, so every message would count as new.
    text = re.sub(rf' "{re.escape(job.name)}-[^"]*"', "", refusal.strip())[:_MESSAGE_LIMIT]
    advice = pods.pod_advice(refusal)
    return f"{beginning}: {text}; {advice}; it goes on by itself then, or delete the Job"
