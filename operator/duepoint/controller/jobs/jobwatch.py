"""Jobs of Schedules, watched: how they end, which are active, and which are too many.

A raw watch of every Job with our label, for each watched namespace or for the cluster. What a Job
says of its owner is believed only where the Schedule of that uid has that name and is in the Job's
namespace. Ends of Jobs become run events for the reporter, told again after every list because the
fold knows what it has seen. Finished Jobs beyond the history limits are deleted in the background,
also of a suspended Schedule, and never of a slot that has not ended by what the API server has, nor
before the status tells how they ended: a leader that takes over would find them shown as running
and gone. Nor while a request that may make the Job once more is under way (``laterequests``); a Job
that is there again all the same is told of.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs import history, jobbook, unended
from duepoint.controller.jobs.cutshort import GRACE_SECONDS, CutShort
from duepoint.controller.jobs.jobbook import JobBook, Seen
from duepoint.controller.jobs.laterequests import LateRequests
from duepoint.controller.jobs.lostjobs import LostJobs
from duepoint.controller.jobs.podless import Podless, PodlessJob
from duepoint.controller.jobs.replacements import Replacements
from duepoint.controller.jobs.unended import Unended
from duepoint.controller.schedules.workqueue import WorkQueue
from duepoint.controller.status import book
from duepoint.controller.status.receipts import Receipt
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.termevents import TermEvents
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, port
from duepoint.runs.run import RunEvent
from duepoint.schedules.definition import Definition
from duepoint.schedules.rule import Policy

_CLEANERS = 2

#: The slots of a schedule that the queue holds because of ScheduleRuns.
Wanted = Callable[[Definition], Awaitable[frozenset[int]]]

#: A list and watch that lived so long begins its waits anew.
_HEALTHY_SECONDS = 60.0


class JobWatch:
    """The service; one for each term of a leader.

    Args:
        wanted: which slots of a schedule ScheduleRuns want and have not got; raises TryLater.
        namespaces: the namespaces to watch; empty = the whole cluster.
        keeps: whether a finished Job (namespace, name) must stay, because its ScheduleRun does not
            show yet how it ended; ``look`` is called once it may go.
        catch_up: returns once every outcome before the call was read; raises TryLater.

    Attributes:
        replacements: Jobs that workers delete in favour of newer slots.
    """

    def __init__(
        self,
        *,
        api: port.Api,
        reporter: Reporter,
        wanted: Wanted,
        keeps: Callable[[str, str], bool],
        catch_up: Callable[[], Awaitable[None]],
        namespaces: tuple[str, ...],
        clock: Clock,
        health: services.Health,
        events: TermEvents,
    ) -> None:
        self._api = api
        self._reporter = reporter
        self._wanted = wanted
        self._namespaces = namespaces
        self._clock = clock
        self._health = health
        self._book = JobBook()
        #: Namespaces that were not listed yet; set once there are none.
        self._unlisted: set[str | None] = set(namespaces or (None,))
        self.listed = asyncio.Event()
        self._cleaning: WorkQueue[str] = WorkQueue(clock)
        self._waits: dict[str, Iterator[float]] = {}
        self.replacements = Replacements(reporter.event, clock, catch_up=catch_up)
        tell_gone = self.replacements.end
        self._lost = LostJobs(api=api, clock=clock, sightings=self, tell=tell_gone)
        self._cut_short = CutShort(clock=clock, tell=tell_gone)
        self._podless = Podless(api=api, clock=clock, jobs=self, tell=reporter.pods_refused)
        self._late = LateRequests()
        self._keeps = keeps
        self._events = events

    async def run(self) -> None:
        """Watch and clean until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cleaning.run(self._clean, _CLEANERS))
            group.create_task(self._lost.run())
            group.create_task(self._cut_short.run())
            group.create_task(self._podless.run())
            for namespace in self._namespaces or (None,):
                group.create_task(self._follow(namespace))

    def look(self, schedule_uid: str) -> None:
        """The watermark or the limits of a Schedule may have moved: there may be Jobs to delete."""
        if self._finished(schedule_uid):
            self._cleaning.put(schedule_uid, schedule_uid)

    def note_upheaval(self, at_us: int) -> None:
        """Claims of slots up to here were lost with the state of the queue."""
        self._late.note_upheaval(at_us)

    def run_started(self, run: Unended) -> None:
        self._late.note(run.namespace, run.job_name, run.told_us, may_come=run.may_come_again)
        if not self._reporter.is_over(run):
            self._lost.doubt([run])

    def has(self, owner: jobs.Owner, job_name: str) -> bool:
        """Whether the Schedule has a Job of that name, ended or not, by the watch."""
        return self._book.has(owner, job_name)

    def podless(self, schedule_uid: str) -> PodlessJob | None:
        """The Job of a Schedule that has been without Pods for longest."""
        owner = self._reporter.owner(schedule_uid)
        return None if owner is None else self._book.podless(owner)

    def runs(self, owner: jobs.Owner, job_name: str) -> bool:
        """Whether a Job of that name of the Schedule is active, by the watch."""
        return self._book.runs(owner, job_name)

    def see(self, job: jobs.Job) -> None:
        """The Job was found otherwise; its end counts though it was told before."""
        self._put(job, replayed=True)
        if (ended := jobbook.end_of(job, self._clock.now_us())) is not None:
            self._reporter.event(ended, replayed=True)

    def is_over(self, run: Unended) -> bool:
        """Whether the run has ended by what is known now."""
        return self._reporter.is_over(run)

    def let_go(self, run: Unended) -> None:
        """The run has ended, and no end of its Job is waited for."""
        self.replacements.let_go(run.uid, run.job_name)

    # -- watching --------------------------------------------------------------------------------

    async def _follow(self, namespace: str | None) -> None:
        waits = _backoff()
        while True:
            began = self._clock.monotonic()
            try:
                await self._list_and_watch(namespace)
            except kube_errors.Gone:
                telemetry.logger.debug("jobs are listed again", namespace=namespace or "")
            except kube_errors.ApiError as trouble:
                if self._health.unwell("jobs", str(trouble)):
                    telemetry.logger.warning("jobs cannot be watched", error=str(trouble))
            if self._clock.monotonic() - began > _HEALTHY_SECONDS:
                waits = _backoff()
            await self._clock.sleep(next(waits))

    async def _list_and_watch(self, namespace: str | None) -> None:
        version = await self._list(namespace)
        self._unlisted.discard(namespace)
        if not self._unlisted:
            self.listed.set()
            self._reporter.jobs_listed()
        self._health.well("jobs")
        changes = self._api.watch(
            jobs.collection(namespace), jobs.Job, version, query={"labelSelector": _LABELLED}
        )
        async for change in changes:
            if change.type is port.ChangeType.DELETED:
                seen = self._book.drop(change.item, self._clock.now_us())
                self._note_gone(seen, change.item)
                self._tell(seen, change.item, replayed=False, is_gone=True)
            else:
                self._put(change.item, replayed=False)

    async def _list(self, namespace: str | None) -> str:
        version = ""
        seen: set[str] = set()
        pages = self._api.list_pages(
            jobs.collection(namespace), jobs.Job, query={"labelSelector": _LABELLED}
        )
        async for page in pages:
            version = page.metadata.resource_version
            for job in page.items:
                seen.add(job.metadata.uid)
                self._put(job, replayed=True)
        for owner in self._book.keep_only(namespace, seen):
            if self._is_its_own(owner):
                self._tell_active(owner)
                self._events.job_ended(owner.uid, "")
        for schedule_uid, runs in self._reporter.unended(namespace):
            if (shown := self._reporter.owner(schedule_uid)) is not None:
                self._tell_active(shown)
            self._lost.doubt(runs, patience_seconds=0)
        replaced = map(unended.of_event, self.replacements.runs())
        self._lost.doubt(replaced, patience_seconds=0)
        return version

    def _put(self, job: jobs.Job, *, replayed: bool) -> None:
        seen = self._book.put(job, self._clock.now_us())
        is_gone = job.metadata.deletion_timestamp is not None
        self._tell_if_back(seen, job)
        self._tell(seen, job, replayed=replayed, is_gone=is_gone)
        begun = jobbook.begun(job)
        if begun is None or seen.owner is None or not self._book.is_active(seen.owner, job):
            return
        if self._is_its_own(seen.owner):
            self._reporter.runs_on(begun)

    def _note_gone(self, seen: Seen, job: jobs.Job) -> None:
        if seen.owner is not None and self._is_its_own(seen.owner):
            known = job.metadata
            self._late.note_gone(seen.owner.uid, known.name, known.uid, self._clock.now_us())

    def _tell_if_back(self, seen: Seen, job: jobs.Job) -> None:
        """Its slot had ended, and runs once more."""
        owner, known = seen.owner, job.metadata
        if owner is None or not self._is_its_own(owner):
            return
        if self._late.is_back(owner.uid, known.name, known.uid):
            telemetry.jobs_made_again_total.inc()
            self._reporter.made_again(owner.uid, known.name, known.uid)

    def _tell(self, seen: Seen, job: jobs.Job, *, replayed: bool, is_gone: bool) -> None:
        if seen.claimed is not None and self._is_its_own(seen.claimed):
            self._reporter.job_without_slot(seen.claimed.uid, job.metadata.name, job.metadata.uid)
        owner = seen.owner
        if owner is None or not self._is_its_own(owner):
            return
        self._tell_active(owner)
        if seen.ended is not None:
            self._reporter.event(seen.ended, replayed=replayed)
            self.replacements.let_go(owner.uid, seen.ended.job_name)
            self.look(owner.uid)
        if seen.cut_short is not None:
            self._cut_short.note(seen.cut_short)
        if seen.ended is not None or seen.cut_short is not None or is_gone:
            self._events.job_ended(owner.uid, job.metadata.name)

    def _tell_active(self, owner: jobs.Owner) -> None:
        self._reporter.active(owner.uid, self._book.active(owner, book.ACTIVE))
        self._podless.note(owner.uid)

    def _is_its_own(self, owner: jobs.Owner) -> bool:
        """Whether no other Schedule is meant by this uid; of one that is gone nobody knows."""
        return self._reporter.owner(owner.uid) in (None, owner)

    def _finished(self, schedule_uid: str) -> tuple[history.FinishedJob, ...]:
        owner = self._reporter.owner(schedule_uid)
        return () if owner is None else self._book.finished(owner)

    def run_replacing(self, event: RunEvent, receipt: Receipt | None) -> None:
        """A worker deletes the Job of this run; one that the watch does not show is asked for."""
        self.replacements.note(event, receipt)
        self._lost.doubt([unended.of_event(event)], patience_seconds=GRACE_SECONDS)

    # -- cleaning --------------------------------------------------------------------------------

    async def _clean(self, schedule_uid: str) -> float | None:
        try:
            again = await self._delete_excess(schedule_uid)
        except (kube_errors.ApiError, errors.TryLater) as trouble:
            telemetry.logger.debug("history not cleaned", uid=schedule_uid, error=str(trouble))
            return next(self._waits.setdefault(schedule_uid, _backoff()))
        except Exception as bug:  # noqa: BLE001 - one Schedule's trouble is nobody else's
            telemetry.logger.error("history not cleaned", uid=schedule_uid, exc_info=bug)
            return next(self._waits.setdefault(schedule_uid, _backoff()))
        self._waits.pop(schedule_uid, None)
        return again

    async def _delete_excess(self, schedule_uid: str) -> float | None:
        """Seconds until something is to be looked at again of which nothing may be told."""
        finished = self._finished(schedule_uid)
        if not finished:
            return None
        known = await self._reporter.definition(schedule_uid)
        if known is None:
            keeps = self._reporter.refused_keeps(schedule_uid)
            return None if keeps is None else await self._delete_of_refused(schedule_uid, keeps)
        policy = known.rule.policy
        is_any_wanted = any(job.is_wanted for job in history.too_many(finished, policy))
        wanted_us = await self._wanted(known) if is_any_wanted else frozenset()
        has_ended = functools.partial(self._reporter.has_ended, schedule_uid)
        late = await self._delete(
            schedule_uid, history.excess(finished, policy, has_ended, wanted_us)
        )
        return late if late is not None or not wanted_us else _WANTED_AGAIN_SECONDS

    async def _delete_of_refused(self, schedule_uid: str, keeps: Policy) -> float | None:
        """The queue holds nothing of it, so no slot of it is tried again but those in flight."""
        over_us = self._clock.now_us() - _IN_FLIGHT_US
        finished = history.too_many(self._finished(schedule_uid), keeps)
        ended = [
            job
            for job in finished
            if job.slot_us <= over_us or self._reporter.has_ended(schedule_uid, job.slot_us)
        ]
        late = await self._delete(schedule_uid, ended)
        return late if late is not None or len(ended) == len(finished) else _WANTED_AGAIN_SECONDS

    async def _delete(
        self, schedule_uid: str, excess: Iterable[history.FinishedJob]
    ) -> float | None:
        """Seconds until the first that has to stay for a late request may go."""
        shown = self._reporter.unended_names(schedule_uid)  # looked at again once that is written
        first_us: int | None = None
        for job in excess:
            if job.name in shown or self._keeps(job.namespace, job.name):
                continue
            until_us = self._late.stays_until_us(job)
            if until_us > self._clock.now_us():
                first_us = until_us if first_us is None else min(first_us, until_us)
                continue
            await jobs.delete(self._api, job.namespace, job.name, job.uid)
            self._late.note_gone(schedule_uid, job.name, job.uid, self._clock.now_us())
            owner = self._reporter.owner(schedule_uid)
            if owner is not None:
                self._book.let_go(owner, job.uid)
        if first_us is None:
            return None
        return min(max((first_us - self._clock.now_us()) / 1e6, 0.1), _WANTED_AGAIN_SECONDS)


#: A slot that a ScheduleRun wants and whose Job has ended is settled within moments.
_WANTED_AGAIN_SECONDS = 30.0
#: What a worker had in hand when a Schedule was refused has come to its end after this.
_IN_FLIGHT_US = 600_000_000
_LABELLED = jobs.SCHEDULE_LABEL


def _backoff() -> Iterator[float]:
    return services.backoff(first_seconds=0.5, most_seconds=30.0)
