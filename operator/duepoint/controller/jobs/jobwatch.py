"""The watch of the Jobs of Schedules: reports which are active, how they end, which came back.

A raw list-and-watch of every Job with our label, for each watched namespace or for the cluster. A
Job's owner counts only if the Schedule of that uid has that name and is in the Job's namespace. The
ends of Jobs become run events for the reporter; every list reports them again, because the fold
recognises what it has counted. ``jobsync`` acts on the changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator

from duepoint import telemetry
from duepoint.controller.jobs import jobstate
from duepoint.controller.jobs.jobstate import JobCache, OwnedJob
from duepoint.controller.jobs.jobsync import JobSync
from duepoint.controller.status import events as changes
from duepoint.controller.term import TermContext
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs, pods, port
from duepoint.kube.events import ObjectReference
from duepoint.runs.run import RunEvent, RunState

#: The wait before a watch that was too old begins again with a list.
_AGAIN_SECONDS = 0.5
#: The failure reason of a Job for which only its Pods know the cause.
_OF_PODS = "BackoffLimitExceeded"
#: The timeout of a read of Pods.
_READ_SECONDS = 2.0


class JobWatch:
    """The service; one for each term of a leader.

    Attributes:
        listed: set once every namespace was listed.
        sync: acts on the changes.
    """

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._reporter = term.services.reporter
        #: Namespaces that were not listed yet; None = the cluster.
        self._unlisted: set[str | None] = set(term.namespaces or (None,))
        self.listed = asyncio.Event()
        self._cache = JobCache()
        self.sync = JobSync(term, self._cache)

    async def run(self) -> None:
        """Watch and clean until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sync.run())
            for namespace in self._term.namespaces or (None,):
                group.create_task(self._follow(namespace))

    # -- the interface for other services --------------------------------------------------------

    def has(self, owner: jobs.JobOwner, job_name: str) -> bool:
        """Whether the watch shows a Job of that name for the Schedule, ended or not."""
        return self._cache.find(owner, job_name) is not None

    def run_started(self, run: RunEvent) -> None:
        """Record that a worker has created the Job of a run."""
        self.sync.late.record(run)
        self.sync.request(run.uid)

    # -- watching --------------------------------------------------------------------------------

    async def _follow(self, namespace: str | None) -> None:
        step = functools.partial(self._list_and_watch, namespace)
        while True:
            await self._term.until_done("jobs", step, "jobs cannot be watched")
            telemetry.logger.debug("jobs are listed again", namespace=namespace or "")
            await self._term.clock.sleep(_AGAIN_SECONDS)

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
                        self._remove(change.item)
                    else:
                        pod_end = await self._pod_end(change.item)
                        self._observe(change.item, pod_end=pod_end)

    async def _list(self, namespace: str | None) -> str:
        version = ""
        uids: set[str] = set()
        pages = self._term.api.list_pages(jobs.collection(namespace), jobs.Job, query=_LABELLED)
        async for page in pages:
            version = page.metadata.resource_version
            for job in page.items:
                uids.add(job.metadata.uid)
                with _reported(job):
                    self._observe(job, pod_end=await self._pod_end(job))
        for owner in self._cache.retain(namespace, uids):
            if self._is_its_own(owner):
                self.sync.request(owner.uid)
                self.sync.job_ended(owner.uid, "")
        for uid, state in self._reporter.states.items():
            if namespace in (None, state.namespace):
                self.sync.request(uid)
        return version

    # -- one Job ---------------------------------------------------------------------------------

    async def _pod_end(self, job: jobs.Job) -> str:
        """Return how a failing or failed Job's Pod ended; "" = the Job says it, or nothing does.

        Read once, when the Job begins to fail: an evicted Pod is gone when the Job ends.
        """
        owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
        cause = jobs.finished(job) or jobs.failing(job)
        if cause is None or cause.reason != _OF_PODS or owner is None or slot_us is None:
            return ""
        state, known = self._reporter.states.get(owner.uid), self._cache.get(job.metadata.uid)
        if state is None or not state.is_running(jobstate.start_of(job, owner, slot_us)):
            return ""
        found = known.pod_end if known is not None else ""
        if not found:
            with contextlib.suppress(TimeoutError, kube_errors.ApiError):
                async with asyncio.timeout(_READ_SECONDS):
                    of = job.metadata
                    found = await pods.of_job(
                        self._term.api, of.namespace, of.name, of.resource_version
                    )
        if known is not None:
            known.pod_end = found
        return found

    def _observe(self, job: jobs.Job, *, pod_end: str = "") -> None:
        """Handle an existing Job.

        A Job is a run only if a Schedule controls it, by namespace, name and uid, and it names its
        slot; neither the label nor the uid alone proves that. A Job that was a run and no longer
        qualifies was released: from then on it is not a run of the Schedule.
        """
        name, uid = job.metadata.name, job.metadata.uid
        owner, slot_us, known = jobs.owner_of(job), jobs.slot_us(job), self._cache.get(uid)
        if known is not None and (slot_us is None or known.owner != owner):
            self._leave(known)
        elif owner is not None and slot_us is not None and self._is_its_own(owner):
            if self.sync.late.is_back(owner.uid, name, uid):
                self._term.record(changes.of_job_made_again(_about(owner), name, uid))
            if known is None:
                known = OwnedJob(owner=owner, name=name, uid=uid, slot_us=slot_us)
                self._cache.put(known)
            self._update(job, known, slot_us, pod_end)

    def _update(self, job: jobs.Job, known: OwnedJob, slot_us: int, pod_end: str) -> None:
        """Update the cached state of a Job, and report what has changed."""
        owner, was_active = known.owner, known.succeeded is None
        is_leaving = job.metadata.deletion_timestamp is not None
        known.slot_us, known.trigger = slot_us, jobstate.trigger(job)
        known.created_us = jobstate.created_us(job)
        known.without_pods_us = jobs.without_pods_since_us(job)
        known.is_leaving = known.is_leaving or is_leaving
        ended = jobstate.end_of(job, owner, slot_us, self._term.clock.now_us(), pod_end)
        if ended is not None and was_active:
            known.succeeded = ended.state is RunState.SUCCEEDED
        self.sync.request(owner.uid)
        if known.succeeded is None:
            self._reporter.job_runs(jobstate.start_of(job, owner, slot_us, pod_end))
        elif was_active and ended is not None:
            self._reporter.event(ended)
            self.sync.job_ended(owner.uid, known.name)
        if is_leaving:
            self.sync.job_ended(owner.uid, known.name)

    def _remove(self, job: jobs.Job) -> None:
        """Handle a Job that is gone; its last state may show an end that is new."""
        uid = job.metadata.uid
        self._observe(job)
        if (known := self._cache.get(uid)) is not None:
            now_us = self._term.clock.now_us()
            self.sync.late.record_gone(known.owner.uid, known.name, uid, now_us)
            self._leave(known)

    def _leave(self, known: OwnedJob) -> None:
        """Drop a Job that was deleted or released; the sync ends its run if that is active."""
        self._cache.drop(known.uid)
        self.sync.request(known.owner.uid)
        self.sync.job_ended(known.owner.uid, known.name)

    def found(self, job: jobs.Job) -> None:
        """Handle a Job read without the watch; report its end even if it was reported before."""
        self._observe(job)
        owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
        if owner is None or slot_us is None:
            return
        if (ended := jobstate.end_of(job, owner, slot_us, self._term.clock.now_us())) is not None:
            self._reporter.event(ended)

    def _is_its_own(self, owner: jobs.JobOwner) -> bool:
        """Whether no other Schedule has this uid; True if the Schedule is unknown or gone."""
        known = self._reporter.states.get(owner.uid)
        return known is None or known.owner == owner


def _about(owner: jobs.JobOwner) -> ObjectReference:
    return ObjectReference(namespace=owner.namespace, name=owner.name, uid=owner.uid)


@contextlib.contextmanager
def _reported(job: jobs.Job) -> Iterator[None]:
    """Log a bug in the handling of one Job, so that it does not stop the others."""
    try:
        yield
    except Exception as bug:  # noqa: BLE001 - any user may create a Job
        place = {"namespace": job.metadata.namespace, "job": job.metadata.name}
        telemetry.logger.error("job not observed", error=repr(bug), exc_info=bug, **place)


_LABELLED = {"labelSelector": jobbuilder.SCHEDULE_LABEL}
