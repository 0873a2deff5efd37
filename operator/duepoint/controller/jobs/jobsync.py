"""The controller of Jobs: watches the Jobs of Schedules, and syncs those of one Schedule at a time.

The watch is a raw list-and-watch of every Job with our label, for each watched namespace or for the
cluster. A Job's owner counts only if the Schedule of that uid has that name and is in the Job's
namespace. The ends of Jobs become run events for the reporter; every list reports them again,
because the fold recognises what it has counted.

``sync`` tells the queue which Jobs have ended, ends runs whose Jobs disappeared, deletes finished
Jobs beyond the history limits (``jobstate``), and reports why Jobs get no Pods. In a calm cluster
it sends no request.

*Ended.* When a Job ends, a slot that waits for it becomes due at once. An edit that allows more
runs makes every waiting slot due. Correctness does not depend on this: a worker checks the Jobs
itself before it refuses a slot, and a waiting slot is retried anyway.

*Disappeared.* Each sync compares the active runs with the Jobs that the watch shows. A Job that the
watch does not show is read a second later: Kubernetes deletes the Jobs of a deleted Schedule, and
the watch of Jobs may be ahead of the watch of Schedules. One that has ended is read at once. If the
Job does not exist, or was released, its run counts as failed. A worker that replaces a Job reports
that among the outcomes before it deletes the Job, so every outcome up to then is read first:
otherwise a Job that Duepoint replaced could be taken for one that a user deleted.

*Without Pods.* The Job controller retries for ever when its Pods are refused, and neither the Job
nor its owner shows that. After a while we read the reason from the Job controller's Events about
the oldest such Job, and again, ever less often, until it has Pods, has ended or is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import Collection, Iterator

from duepoint import faults, telemetry
from duepoint.controller.jobs import jobstate
from duepoint.controller.jobs.jobstate import OwnedJob
from duepoint.controller.status import events as changes
from duepoint.controller.status import folding
from duepoint.controller.status.published import instant
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import sharding
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs, pods, port
from duepoint.kube.events import ObjectReference
from duepoint.runs.run import RunState
from duepoint.runs.summary import Key
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

#: The wait before a watch that was too old begins again with a list.
_LIST_SECONDS = 0.5
#: The failure reason of a Job whose Pods alone know the cause.
_OF_PODS = "BackoffLimitExceeded"
#: The most reads of Pods in a second, and the timeout of one: the watch waits for them.
_READS_PER_SECOND = 20
_READ_SECONDS = 2.0
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
        listed: set once every namespace was listed.
        late: the late requests that may still create a Job again.
    """

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._states = term.services.states
        self._reporter = term.services.reporter
        #: Namespaces that were not listed yet; None = the cluster.
        self._unlisted: set[str | None] = set(term.namespaces or (None,))
        self.listed = asyncio.Event()
        self.late = jobstate.LateRequests()
        #: Jobs of Schedules that the watch shows, by their uids, and those of each Schedule.
        self._jobs: dict[str, OwnedJob] = {}
        self._of: dict[jobs.JobOwner, dict[str, OwnedJob]] = {}
        #: The second of the last read of Pods, and the number of reads in it.
        self._reads = (0, 0)
        #: By Schedule: names of Jobs that have ended; an empty name = more runs may start.
        self._ended: dict[str, set[str]] = {}
        #: By Schedule: Jobs of active runs that the watch does not show, and since when.
        self._absent: dict[str, dict[str, float]] = {}
        self._work: WorkQueue[str] = WorkQueue(
            term.clock, "jobs not synced", ends=(queue_errors.Fenced,)
        )

    async def run(self) -> None:
        """Watch and sync until cancelled, once all Schedules are listed."""
        await self._term.services.resync.first_done.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work.run(self.sync, _WORKERS))
            for namespace in self._term.namespaces or (None,):
                group.create_task(self._follow(namespace))

    # -- the interface for other services --------------------------------------------------------

    def find(self, owner: jobs.JobOwner, job_name: str) -> OwnedJob | None:
        """Return the Schedule's Job of that name, ended or not, if the watch shows it."""
        return next((job for job in self._owned(owner) if job.name == job_name), None)

    def _owned(self, owner: jobs.JobOwner) -> Collection[OwnedJob]:
        return self._of.get(owner, {}).values()

    def request(self, schedule_uid: str) -> None:
        """Request a sync: a Job of this Schedule, or the state of its runs, has changed."""
        state = self._states.get(schedule_uid)
        if state is not None and (
            state.refused_pods or self._owned(state.owner) or state.running_jobs()
        ):
            self._work.put(schedule_uid, schedule_uid)

    def job_ended(self, schedule_uid: str, job_name: str) -> None:
        """Record that a Job has ended or is gone; an empty name = more runs may start."""
        self._ended.setdefault(schedule_uid, set()).add(job_name)
        self._work.put(schedule_uid, schedule_uid)

    # -- watching --------------------------------------------------------------------------------

    async def _follow(self, namespace: str | None) -> None:
        step = functools.partial(self._list_and_watch, namespace)
        while True:
            await self._term.until_done("jobs", step, "jobs cannot be watched")
            telemetry.logger.debug("jobs are listed again", namespace=namespace or "")
            await self._term.clock.sleep(_LIST_SECONDS)

    async def _list_and_watch(self, namespace: str | None) -> None:
        """List and watch until the watch is too old to continue; raises ApiError."""
        version = await self._list(namespace)
        self._unlisted.discard(namespace)
        if not self._unlisted:
            self.listed.set()
        self._term.health.well("jobs")
        changes = self._term.api.watch(
            jobs.collection(namespace), jobs.Job, version, query=_LABELLED
        )
        with contextlib.suppress(kube_errors.Gone):
            async for change in changes:
                with _reported(change.item):
                    if change.type is port.ChangeType.DELETED:
                        await self._remove(change.item)
                    else:
                        await self._observe(change.item)

    async def _list(self, namespace: str | None) -> str:
        version = ""
        uids: set[str] = set()
        pages = self._term.api.list_pages(jobs.collection(namespace), jobs.Job, query=_LABELLED)
        async for page in pages:
            version = page.metadata.resource_version
            for job in page.items:
                uids.add(job.metadata.uid)
                with _reported(job):
                    await self._observe(job)
        for known in list(self._jobs.values()):
            if known.uid not in uids and namespace in (None, known.namespace):
                self._drop(known)
        for uid, state in self._states.items():
            if namespace in (None, state.namespace):
                self.request(uid)
        return version

    # -- one Job ---------------------------------------------------------------------------------

    async def _observe(self, job: jobs.Job) -> None:
        """Handle an existing Job.

        A Job is a run only if a Schedule controls it, by namespace, name and uid, and it names its
        slot; neither the label nor the uid alone proves that. A Job that was a run and no longer
        qualifies was released: from then on it is not a run of the Schedule.
        """
        name, uid = job.metadata.name, job.metadata.uid
        owner, slot_us, known = jobs.owner_of(job), jobs.slot_us(job), self._jobs.get(uid)
        if known is not None and (slot_us is None or known.owner != owner):
            self._drop(known)
        elif owner is not None and slot_us is not None and self._is_its_own(owner):
            if self.late.is_back(owner.uid, name, uid):
                about = ObjectReference(namespace=owner.namespace, name=owner.name, uid=owner.uid)
                self._term.record(changes.of_job_made_again(about, name, uid))
            if known is None:
                known = OwnedJob(owner=owner, name=name, uid=uid, slot_us=slot_us)
                self._jobs[uid] = self._of.setdefault(owner, {})[uid] = known
            if known.succeeded is None and not known.pod_end:
                known.pod_end = await self._pod_end(job, owner, slot_us)
            self._update(job, known, slot_us)

    async def _pod_end(self, job: jobs.Job, owner: jobs.JobOwner, slot_us: int) -> str:
        """Return how a failing or failed Job's Pod ended; "" = unknown, or the Job itself shows it.

        Read once, when the Job begins to fail: an evicted Pod is gone when the Job ends. If many
        fail at once, only the Pods of some are read.
        """
        cause, state = jobs.finished(job) or jobs.failing(job), self._states.get(owner.uid)
        if cause is None or cause.reason != _OF_PODS or state is None:
            return ""
        if not state.is_running(jobstate.start_of(job, owner, slot_us)):
            return ""
        second = int(self._term.clock.monotonic())
        self._reads = (second, self._reads[1] + 1 if self._reads[0] == second else 1)
        if self._reads[1] <= _READS_PER_SECOND:
            with contextlib.suppress(TimeoutError, kube_errors.ApiError):
                async with asyncio.timeout(_READ_SECONDS):
                    name, version = job.metadata.name, job.metadata.resource_version
                    return await pods.of_job(self._term.api, owner.namespace, name, version)
        return ""

    def _update(self, job: jobs.Job, known: OwnedJob, slot_us: int) -> None:
        """Update the cached state of a Job, and report what has changed."""
        owner, was_active, pod_end = known.owner, known.succeeded is None, known.pod_end
        is_leaving = job.metadata.deletion_timestamp is not None
        known.slot_us, known.trigger = slot_us, jobstate.trigger(job)
        known.created_us = jobstate.created_us(job)
        known.without_pods_us = jobs.without_pods_since_us(job)
        known.is_leaving = known.is_leaving or is_leaving
        ended = jobstate.end_of(job, owner, slot_us, self._term.clock.now_us(), pod_end)
        if ended is not None and was_active:
            known.succeeded = ended.state is RunState.SUCCEEDED
        self.request(owner.uid)
        if known.succeeded is None:
            if jobs.failing(job) is not None:
                self._reporter.event(jobstate.start_of(job, owner, slot_us, pod_end))
        elif was_active and ended is not None:
            self._reporter.event(ended)
            self.job_ended(owner.uid, known.name)
        if is_leaving:
            self.job_ended(owner.uid, known.name)

    async def _remove(self, job: jobs.Job) -> None:
        """Handle a Job that is gone; its last state may show an end that is new."""
        uid = job.metadata.uid
        await self._observe(job)
        if (known := self._jobs.get(uid)) is not None:
            self.late.record_gone(known.owner.uid, known.name, uid)
            self._drop(known)

    def _drop(self, known: OwnedJob) -> None:
        """Drop a Job that was deleted or released; the sync ends its run if that is active."""
        del self._jobs[known.uid]
        del self._of[known.owner][known.uid]
        if not self._of[known.owner]:
            del self._of[known.owner]
        self.request(known.owner.uid)
        self.job_ended(known.owner.uid, known.name)

    def _is_its_own(self, owner: jobs.JobOwner) -> bool:
        """Whether no other Schedule has this uid; True if the Schedule is unknown or gone."""
        known = self._states.get(owner.uid)
        return known is None or known.owner == owner

    # -- one Schedule ------------------------------------------------------------------------------

    async def sync(self, schedule_uid: str) -> float | None:
        """Make the Jobs of this Schedule and its runs agree; return seconds until the next sync."""
        await self._finish_ended(schedule_uid)
        waits = [
            await self._end_absent(schedule_uid),
            await self._clean(schedule_uid),
            await self._read_pods(schedule_uid),
        ]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _finish_ended(self, schedule_uid: str) -> None:
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
        # A deleted Schedule has no runs to end here; its ScheduleRuns end with it.
        for key, name in [] if state is None else state.running_jobs():
            assert state is not None  # noqa: S101 - it has active runs
            known = self.find(state.owner, name)
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
            if (known := self._jobs.get(job.metadata.uid)) is not None:
                known.succeeded = None  # its end is reported again
            await self._observe(job)
            return
        await self._term.services.outcomes.catch_up()
        slot_us, wanted_by = run
        at_us = self._term.clock.now_us() - ago_us
        replaced = state.runs().replacing.get(job_name)
        ended = folding.of_run(
            state.owner,
            slot_us,
            at_us,
            state=RunState.FAILED if replaced is None else RunState.REPLACED,
            reason=Reason.DELETED if replaced is None else Reason.REPLACED,
            message=replaced or (jobstate.LOST if job is None else jobstate.RELEASED),
            trigger="Manual" if wanted_by else "Schedule",
            started_us=slot_us,  # so that it does not become the newest run
            job_name=job_name,
        )
        self._reporter.event(ended)

    async def _clean(self, schedule_uid: str) -> float | None:
        """Delete Jobs beyond the history limits; return seconds until the next check.

        The next status that shows an end causes another check.
        """
        state, now_us = self._states.get(schedule_uid), self._term.clock.now_us()
        if state is None:
            return None
        owned = self._owned(state.owner)
        finished = [job for job in owned if job.succeeded is not None and not job.is_leaving]
        known = await self._reporter.definition(schedule_uid) if finished else None
        if known is None or not (beyond := jobstate.too_many(finished, known.rule.policy)):
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
            elif job.name in shown_running or keeps(job.owner, job.name):
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
        job.is_leaving = True  # or the next sync would delete it again

    # -- Pods --------------------------------------------------------------------------------------

    async def _read_pods(self, schedule_uid: str) -> float | None:
        """Report why the oldest Job without Pods has none; return seconds until the next look."""
        state = self._states.get(schedule_uid)
        owned = [] if state is None else self._owned(state.owner)
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
    return f"{beginning}: {text}; {advice}; the Job then continues by itself, or delete it"


@contextlib.contextmanager
def _reported(job: jobs.Job) -> Iterator[None]:
    """Log a bug in the handling of one Job, so that it does not stop the others."""
    try:
        yield
    except Exception as bug:  # noqa: BLE001 - any user may create a Job
        place = {"namespace": job.metadata.namespace, "job": job.metadata.name}
        telemetry.logger.error("job not observed", error=repr(bug), exc_info=bug, **place)


_LABELLED = {"labelSelector": jobbuilder.SCHEDULE_LABEL}
