"""What a leader does in its term, from the first look to the last.

A term opens the index with its epoch and then runs, side by side: the reconciler, the reporter and
the resync; once a first resync was tried, kopf's watch; and once one was complete, the outcomes,
the Jobs and the sweep. All of it is made anew for each term and awaited when it ends, so nothing of
a term outlives it. A standby holds none of this and does nothing. Firing needs none of it: without
a leader statuses are late and nothing is repaired, and every slot still runs on time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from duepoint import agreedclock, errors, services, settings, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.jobs.runends import RunEnds
from duepoint.controller.maintenance import fallbacks, layoutnote
from duepoint.controller.maintenance.collector import Collector
from duepoint.controller.maintenance.endings import Endings
from duepoint.controller.maintenance.fallbacks import Fallbacks
from duepoint.controller.maintenance.gauges import QueueGauges
from duepoint.controller.maintenance.indexwatch import IndexWatch
from duepoint.controller.maintenance.otherinstalls import OtherInstalls
from duepoint.controller.maintenance.partitioner import Partitioner
from duepoint.controller.maintenance.sweeper import Sweeper
from duepoint.controller.scheduleruns import scheduleruns
from duepoint.controller.schedules.dryruns import DryRuns
from duepoint.controller.schedules.reconcile import Reconcile
from duepoint.controller.schedules.reconciler import Reconciler
from duepoint.controller.schedules.resync import Resync
from duepoint.controller.schedules.resyncer import Resyncer
from duepoint.controller.status.openreader import OpenReader
from duepoint.controller.status.outcomes import Outcomes
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.watching.kopfthread import KopfThread
from duepoint.delayqueue import messages, ownership, serverhealth
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
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


@dataclass(slots=True, kw_only=True)
class _Services:
    """Everything that runs in one term."""

    recorder: events.Recorder
    reconciler: Reconciler
    reporter: Reporter
    resyncer: Resyncer
    kopf: KopfThread
    outcomes: Outcomes
    jobs: JobWatch
    ends: RunEnds
    runs: scheduleruns.ScheduleRuns
    sweeper: Sweeper
    index: IndexWatch
    gauges: QueueGauges
    collector: Collector
    partitioner: Partitioner
    fallbacks: Fallbacks


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
    ) -> None:
        self._settings = settings
        self._api = api
        self._queue = queue
        self._credentials = credentials
        self._clock = clock
        self._health = health
        self._own_streams = own_streams
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
            await self._run(self._made(layout, epoch, term))
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
                if isinstance(trouble, scripting.Foreign):
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
            self._queue.layouts.belong_to(ownership.Owner(cluster=found.cluster, home=found.home))
            self._is_identified = True

    async def _run(self, made: _Services) -> None:
        async with asyncio.TaskGroup() as group:
            for run in (made.reconciler.run, made.reporter.run, made.resyncer.run):
                group.create_task(run())
            # kopf walks through 100,000 objects for a minute, with the interpreter to itself half
            # of that time: what a takeover must arm comes first, by a list of our own.
            group.create_task(_after(made.resyncer.first_tried, made.kopf.run))
            group.create_task(self._others.run())
            group.create_task(made.index.run())
            group.create_task(made.recorder.run())
            group.create_task(made.gauges.run())
            group.create_task(made.collector.run())
            group.create_task(made.partitioner.run())
            for run in (
                made.outcomes.run,
                made.jobs.run,
                made.runs.run,
                made.sweeper.run,
                made.ends.run,
                made.fallbacks.run,
            ):
                group.create_task(_after(made.resyncer.first_done, run))

    def _made(self, layout: messages.Layout, epoch: messages.Epoch, term: Term) -> _Services:
        clock, health, queue = self._clock, self._health, self._queue
        namespaces = self._settings.watch_namespaces
        reconcile = Reconcile(
            queue=queue,
            dry_runs=self._dry_runs,
            epoch=epoch,
            managed_by=self._others.own,
            own_streams=self._own_streams,
        )
        partitioner = Partitioner(
            queue=queue,
            epoch=epoch,
            clock=clock,
            health=health,
            on_layout=lambda layout: term.annotate(layoutnote.of(layout)),
            on_damage=lambda: resyncer.request(),  # noqa: PLW0108 - it is made further down
        )
        recorder = events.Recorder(self._api, clock, "operator")
        reporter = Reporter(
            api=self._api,
            definitions=reconcile.stored,
            clock=clock,
            health=health,
            writes_per_second=self._settings.status_writes_per_second,
            tell=recorder.note,
            managed_by=self._others.own,
        )
        self._others.tell = recorder.note
        reporter.on_other_mark = self._others.suspect
        jobs = JobWatch(
            api=self._api,
            reporter=reporter,
            wanted=reconcile.wanted,
            namespaces=namespaces,
            clock=clock,
            health=health,
        )
        reporter.on_written = jobs.look
        ends = RunEnds(queue=queue, definitions=reporter.definition, epoch=epoch, clock=clock)
        jobs.on_end = ends.note
        reconciler = Reconciler(
            reconcile=reconcile,
            read=functools.partial(schedules.read, self._api),
            reports=reporter,
            health=health,
            clock=clock,
        )
        reporter.on_refused = reconciler.refuse
        reporter.on_proven = reconciler.prove
        reconciler.on_wider = ends.widen
        resync = Resync(
            api=self._api,
            queue=queue,
            reconciler=reconciler,
            note_collision=reconcile.collisions.__setitem__,
            namespaces=namespaces,
            clock=clock,
        )
        outcomes = Outcomes(
            queue=queue,
            reporter=reporter,
            open_slots=OpenReader(queue=queue, reporter=reporter, clock=clock),
            consumer=self._settings.identity,
            clock=clock,
            health=health,
        )
        runs = scheduleruns.ScheduleRuns(
            api=self._api,
            queue=queue,
            epoch=epoch,
            definitions=reconcile.stored,
            catch_up=outcomes.catch_up,
            namespaces=namespaces,
            clock=clock,
            health=health,
            writes_per_second=self._settings.status_writes_per_second,
            tell=recorder.note,
        )
        runs.on_released = jobs.look
        runs.on_withdrawn = reporter.withdrawn
        ends.is_waited_for = runs.has_waiting
        jobs.keeps = runs.keeps
        reporter.on_run_event = runs.event
        reconciler.on_leaving = runs.schedule_leaves
        reconciler.on_settled = runs.schedule_changed
        sweeper = Sweeper(
            queue=queue,
            epoch=epoch,
            watermark_us=reporter.watermark_us,
            clock=clock,
        )

        def compared() -> None:
            sweeper.request()
            runs.request()

        resyncer = Resyncer(
            resync=resync.run,
            every_seconds=self._settings.resync_seconds,
            clock=clock,
            health=health,
            on_done=compared,
        )

        reporter.is_arming = lambda: not (resync.has_listed or resyncer.first_tried.is_set())

        fallback = Fallbacks(
            queue=queue,
            epoch=epoch,
            knowledge=Endings(reporter=reporter, jobs=jobs, runs=runs),
            holds=reporter,
            catch_up=outcomes.catch_up,
            ready=jobs.listed.wait,
            clock=clock,
            health=health,
        )
        jobs.replacements.catch_up = outcomes.catch_up
        outcomes.on_doubt = fallback.look
        fallback.on_doubt = jobs.note_upheaval
        reporter.on_hold = fallback.look

        def doubt() -> None:
            sweeper.doubt()
            resyncer.request()
            fallback.look()

        return _Services(
            recorder=recorder,
            reconciler=reconciler,
            reporter=reporter,
            resyncer=resyncer,
            kopf=KopfThread(
                credentials=self._credentials,
                namespaces=namespaces,
                offer=reconciler.offer,
                offer_run=runs.offer,
                on_list=resyncer.request,
                is_compared=lambda: resyncer.has_succeeded,
                clock=clock,
                health=health,
            ),
            outcomes=outcomes,
            jobs=jobs,
            ends=ends,
            runs=runs,
            sweeper=sweeper,
            gauges=QueueGauges(queue=queue, clock=clock),
            collector=Collector(queue=queue, epoch=epoch, clock=clock),
            index=IndexWatch(
                queue=queue,
                layout=layout,
                epoch=epoch,
                outages=lambda: reconciler.outages + sweeper.outages + queue.health.upheavals,
                on_doubt=doubt,
                clock=clock,
                health=health,
                on_look=partitioner.look,
                on_loss=lambda: jobs.note_upheaval(clock.now_us()),
                by=self._others.own,
            ),
            partitioner=partitioner,
            fallbacks=fallback,
        )


async def _after(ready: asyncio.Event, run: Callable[[], Awaitable[None]]) -> None:
    await ready.wait()
    await run()
