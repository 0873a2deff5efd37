"""What a leader does in its term, from the first look to the last.

A term opens the index with its epoch and then runs, side by side: the reconcile queue, the reporter
and the resync; once all Schedules were listed, kopf's watch; and once a resync was complete, the
outcomes, the Jobs and the sweep. All of it is made anew for each term and awaited when it ends, so
nothing of a term outlives it. A standby holds none of this and does nothing. Firing needs none of
it: without a leader statuses are late and nothing is repaired, and every slot still runs on time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from duepoint import agreedclock, errors, services, settings, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs.completions import Completions
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.maintenance import fallbacks, layoutnote
from duepoint.controller.maintenance.collector import Collector
from duepoint.controller.maintenance.endings import Endings
from duepoint.controller.maintenance.fallbacks import Fallbacks
from duepoint.controller.maintenance.gauges import QueueGauges
from duepoint.controller.maintenance.indexwatch import LOOK_SECONDS, IndexWatch
from duepoint.controller.maintenance.otherinstalls import OtherInstalls
from duepoint.controller.maintenance.partitioner import Partitioner
from duepoint.controller.maintenance.sweeper import ROLL_SECONDS, Sweeper
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import scheduleruns
from duepoint.controller.scheduleruns.runreads import RunReads
from duepoint.controller.schedules.dryruns import DryRuns
from duepoint.controller.schedules.reconcile import Reconcile
from duepoint.controller.schedules.reconcilequeue import ReconcileQueue
from duepoint.controller.schedules.resync import Comparison, Resync
from duepoint.controller.status.openslots import OpenSlotReader
from duepoint.controller.status.outcomes import Outcomes
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.termevents import TermEvents
from duepoint.controller.watching.kopfthread import KopfThread
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import layouts, messages, serverhealth
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import clusters, events, schedules
from duepoint.kube import errors as kube_errors
from duepoint.kube import port as kube_port
from duepoint.kube.credentials import Credentials
from duepoint.schedules import ownstreams

#: Parts of a leader's health; a standby has none of these troubles.
PARTS = (
    "queue",
    serverhealth.PART,
    "watch",
    "resync",
    "status",
    "jobs",
    "outcomes",
    "partition",
    scheduleruns.PART,
    fallbacks.PART,
)


#: A term waits for clocks that agree, and looks this often.
_TIME_SECONDS = 0.1


class Term(Protocol):
    """What the elector hands over."""

    @property
    def epoch(self) -> int: ...

    @property
    def inherited(self) -> Mapping[str, str]: ...

    def annotate(self, notes: Mapping[str, str]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Rhythms of a term, in seconds: looks at the index, and rounds of the sweep."""

    look_seconds: float = LOOK_SECONDS
    roll_seconds: float = ROLL_SECONDS


Run = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Services:
    """What runs in one term, and from when on.

    Attributes:
        listed: every Schedule has been offered once, or could not be listed.
        resynced: a resync has been complete.
    """

    at_once: tuple[Run, ...]
    listed: asyncio.Event
    after_listing: tuple[Run, ...]
    resynced: asyncio.Event
    after_resync: tuple[Run, ...]


class Leadership:
    """Makes and runs the services of each term.

    Args:
        settings: of the operator.
        api: the API server.
        queue: the delay queue, started.
        credentials: for kopf, which has a session of its own.
        health: told of each part while a term lasts.
        own_streams: what the installation allows of streams in our Redis.
    """

    def __init__(
        self,
        *,
        settings: settings.OperatorSettings,
        api: kube_port.Api,
        queue: DelayQueue,
        credentials: Credentials,
        clock: Clock,
        health: services.Health,
        own_streams: ownstreams.OwnStreams = ownstreams.USUAL,
        timings: Timings = Timings(),
    ) -> None:
        self._settings = settings
        self._api = api
        self._queue = queue
        self._credentials = credentials
        self._clock = clock
        self._health = health
        self._own_streams = own_streams
        self._timings = timings
        self._is_identified = False
        self._dry_runs = DryRuns(api)
        self._others = OtherInstalls(
            own=f"{settings.namespace}/{settings.lease_name}", api=api, clock=clock, health=health
        )

    async def work(self, term: Term) -> None:
        """The work of one term; ends by cancellation, or by an error that a new term mends."""
        epoch = messages.Epoch(term.epoch)
        try:
            layout = await self._open(epoch, layoutnote.layout_of(term.inherited))
            term.annotate(layoutnote.of(layout))
            telemetry.logger.info("term begins", epoch=epoch, shards=layout.shards)
            await self._wait_for_time()
            await self._run(self._services(layout, epoch, term))
        finally:
            for part in PARTS:
                self._health.well(part)

    async def _open(self, epoch: messages.Epoch, noted: messages.Layout | None) -> messages.Layout:
        """The index that exists; an empty Redis is cut as it was before, whatever is set now."""
        shards = self._settings.shards
        waits = services.backoff(first_seconds=0.2, most_seconds=5.0)
        while True:
            try:
                await self._identify()
                serverhealth.tell(await self._queue.health.problems(fills=True), self._health)
                layout = await self._queue.membership.open(
                    shards, epoch, noted=noted, by=self._others.own
                )
            except (errors.TryLater, kube_errors.ApiError) as trouble:
                if self._health.unwell("queue", str(trouble)):
                    telemetry.logger.warning("index cannot be opened", error=str(trouble))
                if isinstance(trouble, queue_errors.Foreign):
                    self._others.refused()
                asked = (
                    trouble.retry_after_seconds if isinstance(trouble, errors.TryLater) else None
                )
                await self._clock.sleep(asked or next(waits))
            else:
                self._health.well("queue")
                return layout

    async def _wait_for_time(self) -> None:
        """Return once two clocks agree: nothing is armed by one that may be an hour wrong."""
        while agreedclock.distrust(self._clock):
            await self._clock.sleep(_TIME_SECONDS)

    async def _identify(self) -> None:
        """The queue knows which cluster's index it is to be."""
        if not self._is_identified:
            found = await clusters.identity(self._api, self._settings.namespace)
            self._queue.layouts.belong_to(layouts.Owner(cluster=found.cluster, home=found.home))
            self._is_identified = True

    async def _run(self, services: _Services) -> None:
        async with asyncio.TaskGroup() as group:
            for run in services.at_once:
                group.create_task(run())
            # kopf walks through 100,000 objects for a minute, with the interpreter to itself half
            # of that time: what a takeover must arm comes first, by a list of our own.
            for run in services.after_listing:
                group.create_task(_after(services.listed, run))
            for run in services.after_resync:
                group.create_task(_after(services.resynced, run))

    def _services(self, layout: messages.Layout, epoch: messages.Epoch, term: Term) -> _Services:
        """Everything that runs in one term, in the order of who needs whom."""
        clock, health, queue, api = self._clock, self._health, self._queue, self._api
        chosen, namespaces = self._settings, self._settings.watch_namespaces
        news, listed = TermEvents(), asyncio.Event()
        recorder = events.Recorder(api, clock, "operator")
        reconcile = Reconcile(
            queue=queue,
            dry_runs=self._dry_runs,
            epoch=epoch,
            managed_by=self._others.own,
            own_streams=self._own_streams,
        )
        states = ScheduleStates(reconcile.stored)
        reporter = Reporter(
            api=api,
            states=states,
            clock=clock,
            health=health,
            events=news,
            is_arming=lambda: not listed.is_set(),
            writes_per_second=chosen.status_writes_per_second,
            record=recorder.note,
            managed_by=self._others.own,
        )
        outcomes = Outcomes(
            queue=queue,
            states=states,
            reporter=reporter,
            open_slots=OpenSlotReader(queue=queue, states=states, reporter=reporter, clock=clock),
            consumer=chosen.identity,
            clock=clock,
            health=health,
            events=news,
        )
        runs = scheduleruns.ScheduleRuns(
            api=api,
            queue=queue,
            epoch=epoch,
            definitions=reconcile.stored,
            catch_up=outcomes.catch_up,
            namespaces=namespaces,
            clock=clock,
            health=health,
            events=news,
            writes_per_second=chosen.status_writes_per_second,
            record=recorder.note,
        )
        jobs = JobWatch(
            api=api,
            states=states,
            reporter=reporter,
            wanted=reconcile.wanted,
            keeps=runs.states.keeps,
            catch_up=outcomes.catch_up,
            namespaces=namespaces,
            clock=clock,
            health=health,
            events=news,
        )
        ends = Completions(
            queue=queue,
            definitions=states.definition,
            is_waited_for=runs.states.has_waiting,
            epoch=epoch,
            clock=clock,
        )
        reconcile_queue = ReconcileQueue(
            reconcile=reconcile,
            read=functools.partial(_read, api),
            reports=reporter,
            health=health,
            clock=clock,
            events=news,
        )
        comparison = Comparison(
            api=api,
            queue=queue,
            reconcile_queue=reconcile_queue,
            note_collision=reconcile.collisions.__setitem__,
            namespaces=namespaces,
            clock=clock,
            listed=listed,
        )
        resync = Resync(
            compare=comparison.run,
            every_seconds=chosen.resync_seconds,
            clock=clock,
            health=health,
            events=news,
            listed=listed,
        )
        run_reads = RunReads(api=api, is_wanted=runs.is_wanted, offer=runs.offer, clock=clock)
        kopf = KopfThread(
            credentials=self._credentials,
            namespaces=namespaces,
            observe=reconcile_queue.observe,
            observe_run=run_reads.observe,
            clock=clock,
            health=health,
            events=news,
        )
        sweeper = Sweeper(
            queue=queue,
            epoch=epoch,
            watermark_us=states.watermark_us,
            clock=clock,
            roll_seconds=self._timings.roll_seconds,
        )
        partitioner = Partitioner(queue=queue, epoch=epoch, clock=clock, health=health, events=news)
        index = IndexWatch(
            queue=queue,
            layout=layout,
            epoch=epoch,
            outages=lambda: reconcile_queue.outages + sweeper.outages + queue.health.upheavals,
            clock=clock,
            health=health,
            events=news,
            look_seconds=self._timings.look_seconds,
            by=self._others.own,
        )
        fallback = Fallbacks(
            queue=queue,
            epoch=epoch,
            knowledge=Endings(states=states, jobs=jobs, runs=runs.states),
            holds=reporter,
            catch_up=outcomes.catch_up,
            ready=jobs.listed.wait,
            clock=clock,
            health=health,
            events=news,
        )
        collector = Collector(queue=queue, epoch=epoch, clock=clock)
        gauges = QueueGauges(queue=queue, clock=clock)

        # Who hears of what. Within one line the order of the subscribers is the order of calls.
        news.schedule_applied.subscribe(runs.schedule_changed)
        news.schedule_leaving.subscribe(runs.schedule_leaves)
        news.schedule_widened.subscribe(ends.widen)
        news.objects_compared.subscribe(sweeper.request, runs.request)
        news.run_changed.subscribe(runs.event)
        news.run_started.subscribe(jobs.run_started)
        news.run_replacing.subscribe(jobs.run_replacing)
        news.slot_withdrawn.subscribe(reporter.withdrawn)
        news.job_ended.subscribe(ends.job_ended)
        news.jobs_released.subscribe(jobs.look)
        news.template_proven.subscribe(reconcile_queue.prove)
        news.status_written.subscribe(jobs.look)
        news.generation_refused.subscribe(reconcile_queue.refuse)
        news.mark_replaced.subscribe(self._others.suspect)
        news.points_held.subscribe(fallback.look)
        news.claims_lost.subscribe(jobs.claims_lost)
        news.index_doubted.subscribe(sweeper.doubt, resync.request, fallback.look)
        news.index_damaged.subscribe(resync.request)
        news.layout_read.subscribe(partitioner.look)
        news.layout_changed.subscribe(lambda changed: term.annotate(layoutnote.of(changed)))
        news.watch_listed.subscribe(resync.request)

        return _Services(
            at_once=(
                reconcile_queue.run,
                reporter.run,
                resync.run,
                functools.partial(self._others.run, recorder.note),
                run_reads.run,
                index.run,
                recorder.run,
                gauges.run,
                collector.run,
                partitioner.run,
            ),
            listed=listed,
            after_listing=(kopf.run,),
            resynced=resync.first_done,
            after_resync=(
                outcomes.run,
                jobs.run,
                runs.run,
                sweeper.run,
                ends.run,
                fallback.run,
            ),
        )


async def _read(api: kube_port.Api, seen: Observed) -> schedules.Schedule | None:
    return await schedules.read(api, seen.namespace, seen.name, not_before=seen.version)


async def _after(ready: asyncio.Event, run: Run) -> None:
    await ready.wait()
    await run()
