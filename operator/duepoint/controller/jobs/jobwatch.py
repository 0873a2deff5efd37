"""The watch of the Jobs of Schedules: how they end, which are active, which came back.

A raw list-and-watch of every Job with our label, for each watched namespace or for the cluster. A
Job's owner counts only where the Schedule of that uid has that name and is in the Job's namespace.
The ends of Jobs become run events for the reporter; they are reported again after every list,
because the fold recognises what it has counted. What follows from it all does ``jobsync``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from duepoint import services, telemetry
from duepoint.controller.jobs import jobstate
from duepoint.controller.jobs.jobstate import Observation, WatchedJobs
from duepoint.controller.jobs.jobsync import PATIENCE_SECONDS, JobSync
from duepoint.controller.status import texts
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import RunningJob, TermContext
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs, pods, port

#: After a list and watch that lived so long, the backoff starts anew.
_HEALTHY_SECONDS = 60.0
#: The reason of a Job that leaves it to its Pods to say why.
_OF_PODS = "BackoffLimitExceeded"
#: How often Pods are looked at, and how long an answer is waited for.
_LOOKS_PER_SECOND = 20
_LOOK_SECONDS = 2.0


class JobWatch:
    """The service; one for each term of a leader.

    Args:
        keeps: whether a finished Job (namespace, name) must stay, because its ScheduleRun does not
            show yet how it ended; ``sync.look`` is called once it may go.
        catch_up: returns once every outcome up to the call was reported; raises TryLater.

    Attributes:
        listed: set once every namespace was listed.
        sync: does what follows.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        reporter: Reporter,
        keeps: Callable[[str, str], bool],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._term = term
        self._reporter = reporter
        #: Namespaces that were not listed yet; None = the cluster.
        self._unlisted: set[str | None] = set(term.namespaces or (None,))
        self.listed = asyncio.Event()
        self._jobs = WatchedJobs()
        #: The second in which Pods were looked at last, and how often in it.
        self._looks = (0, 0)
        #: How Pods ended, by uids of Jobs that are bound to fail: evicted Pods are gone at its end.
        self._pod_ends: dict[str, str] = {}
        self.sync = JobSync(
            term,
            watched=self._jobs,
            reporter=reporter,
            observe=self._observe_found,
            catch_up=catch_up,
            keeps=keeps,
        )

    async def run(self) -> None:
        """Watch and clean until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sync.run())
            for namespace in self._term.namespaces or (None,):
                group.create_task(self._follow(namespace))

    # -- what other services say and ask ---------------------------------------------------------

    def has(self, owner: jobs.JobOwner, job_name: str) -> bool:
        """Whether the Schedule has a Job of that name, ended or not, by the watch."""
        return self._jobs.has(owner, job_name)

    def run_started(self, run: RunningJob) -> None:
        """A worker has created the Job of a run."""
        self.sync.late.record(
            run.namespace, run.job_name, run.reported_us, may_come=run.may_come_again
        )
        if not self._reporter.states.is_over(run):
            has_ended = self._jobs.has(
                jobs.JobOwner(run.namespace, run.schedule_name, run.uid), run.job_name
            )
            self.sync.look_for([run], patience_seconds=0 if has_ended else PATIENCE_SECONDS)

    # -- watching --------------------------------------------------------------------------------

    async def _follow(self, namespace: str | None) -> None:
        waits = _backoff()
        while True:
            began = self._term.clock.monotonic()
            try:
                await self._list_and_watch(namespace)
            except kube_errors.Gone:
                telemetry.logger.debug("jobs are listed again", namespace=namespace or "")
            except kube_errors.ApiError as trouble:
                if self._term.health.unwell("jobs", str(trouble)):
                    telemetry.logger.warning("jobs cannot be watched", error=str(trouble))
            if self._term.clock.monotonic() - began > _HEALTHY_SECONDS:
                waits = _backoff()
            await self._term.clock.sleep(next(waits))

    async def _list_and_watch(self, namespace: str | None) -> None:
        version = await self._list(namespace)
        self._unlisted.discard(namespace)
        if not self._unlisted:
            self.listed.set()
        self._term.health.well("jobs")
        changes = self._term.api.watch(
            jobs.collection(namespace), jobs.Job, version, query=_LABELLED
        )
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
        for owner in self._jobs.retain(namespace, uids):
            if self._is_its_own(owner):
                self._report_active(owner)
                self.sync.job_ended(owner.uid, "")
        for schedule_uid, runs in self._reporter.states.running_jobs(namespace):
            if (known := self._reporter.states.owner(schedule_uid)) is not None:
                self._report_active(known)
            self.sync.look_for(runs, patience_seconds=0)
        return version

    # -- one Job ---------------------------------------------------------------------------------

    async def _pod_end(self, job: jobs.Job) -> str:
        """How the Pod of a failing or failed Job ended; empty = the Job says it, or nothing does.

        Further changes of Jobs wait for the answer, so of many that fail at once only some are
        looked at.
        """
        end, owner, slot_us = jobs.finished(job), jobs.owner_of(job), jobs.slot_us(job)
        known = self._pod_ends.pop(job.metadata.uid, "")
        cause = end or jobs.failing(job)
        if cause is None or cause.reason != _OF_PODS or owner is None or slot_us is None:
            return ""
        started = jobstate.start_of(job, owner, slot_us)
        if self._reporter.states.is_over(RunningJob.of_event(started)):
            return ""
        found = known or await self._look(owner.namespace, job.metadata.name)
        if end is None:
            self._pod_ends[job.metadata.uid] = found
        return found

    async def _look(self, namespace: str, job_name: str) -> str:
        second = int(self._term.clock.monotonic())
        self._looks = (second, self._looks[1] + 1 if self._looks[0] == second else 1)
        if self._looks[1] > _LOOKS_PER_SECOND:
            return ""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return await pods.of_job(self._term.api, namespace, job_name)
        except (TimeoutError, kube_errors.ApiError) as trouble:
            telemetry.logger.debug("pods not read", job=job_name, error=str(trouble))
            return ""

    def _observe(self, job: jobs.Job, *, pod_end: str = "") -> None:
        seen = self._jobs.observe(job, self._term.clock.now_us(), pod_end)
        owner, slot_us, known = seen.owner, jobs.slot_us(job), job.metadata
        is_its_own = owner is not None and self._is_its_own(owner)
        is_back = self.sync.late.is_back
        if owner is not None and is_its_own and is_back(owner.uid, known.name, known.uid):
            self._reporter.job_made_again(owner.uid, known.name, known.uid)
        self._report(seen, job, is_gone=known.deletion_timestamp is not None)
        if owner is None or slot_us is None or not is_its_own:
            return
        if self._jobs.is_active(owner, known.name):
            self._reporter.job_runs(jobstate.start_of(job, owner, slot_us, pod_end))

    def _remove(self, job: jobs.Job) -> None:
        self._pod_ends.pop(job.metadata.uid, None)
        now_us = self._term.clock.now_us()
        seen = self._jobs.remove(job, now_us)
        owner = seen.owner
        if owner is not None and self._reporter.states.owner(owner.uid) == owner:
            name, uid = job.metadata.name, job.metadata.uid
            self.sync.late.record_gone(owner.uid, name, uid, now_us)
        self._report(seen, job, is_gone=True)

    def _observe_found(self, job: jobs.Job) -> None:
        """The Job was found without the watch; its end counts though it was reported before."""
        self._observe(job)
        owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
        if owner is None or slot_us is None:
            return
        if (ended := jobstate.end_of(job, owner, slot_us, self._term.clock.now_us())) is not None:
            self._reporter.event(ended)

    def _report(self, seen: Observation, job: jobs.Job, *, is_gone: bool) -> None:
        named, known = seen.without_slot, job.metadata
        if named is not None and self._is_its_own(named):
            self._reporter.job_without_slot(named.uid, known.name, known.uid)
        owner = seen.owner
        if owner is None or not self._is_its_own(owner):
            return
        self._report_active(owner)
        if seen.ended is not None:
            self._reporter.event(seen.ended)
            self.sync.look(owner.uid)
        if seen.gone is not None:
            self.sync.record_gone(seen.gone)
        if seen.ended is not None or seen.gone is not None or is_gone:
            self.sync.job_ended(owner.uid, known.name)

    def _report_active(self, owner: jobs.JobOwner) -> None:
        active = self._jobs.active(owner, texts.MOST_LISTED)
        self._reporter.active_jobs(owner.uid, active)
        self.sync.look_at_pods(owner.uid)

    def _is_its_own(self, owner: jobs.JobOwner) -> bool:
        """Whether no other Schedule has this uid; a Schedule that is gone is not known."""
        return self._reporter.states.owner(owner.uid) in (None, owner)


@contextlib.contextmanager
def _reported(job: jobs.Job) -> Iterator[None]:
    """A bug in the handling of one Job is logged, and does not stop the others."""
    try:
        yield
    except Exception as bug:  # noqa: BLE001 - any user may create a Job
        place = {"namespace": job.metadata.namespace, "job": job.metadata.name}
        telemetry.logger.error("job not observed", error=repr(bug), exc_info=bug, **place)


_LABELLED = {"labelSelector": jobbuilder.SCHEDULE_LABEL}


def _backoff() -> Iterator[float]:
    return services.backoff(first_seconds=0.5, most_seconds=30.0)
