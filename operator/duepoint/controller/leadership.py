"""What a leader does in its term, from the first look to the last.

A term opens the index with its epoch and then runs, side by side: the watch, the reconcile queue,
the reporter and the resync; and once a resync was complete, the outcomes, the Jobs and the sweep.
All of it is made anew for each term and awaited when it ends, so nothing of a term outlives it. A
standby holds none of this and does nothing. Firing needs none of it: without a leader statuses are
late and nothing is repaired, and every slot still runs on time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from duepoint import errors, faults, services, settings, telemetry
from duepoint.clock import Clock
from duepoint.controller import term as terms
from duepoint.controller.maintenance import fallbacks, installationstate, partitioner
from duepoint.controller.maintenance.otherinstalls import OtherInstalls
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import scheduleruns
from duepoint.controller.schedules.dryruns import DryRuns
from duepoint.controller.schedulesets import setpublishing
from duepoint.controller.term import TermContext
from duepoint.controller.termapi import TermApi
from duepoint.controller.termservices import (
    USUAL_TIMINGS,
    Maintenance,
    Run,
    TermServices,
    Timings,
    subscribe,
)
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import layouts, messages, serverhealth
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.faults import FaultPoint
from duepoint.kube import clusters, events
from duepoint.kube import errors as kube_errors
from duepoint.kube import port as kube_port
from duepoint.runs.run import RunEvent
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
    setpublishing.PART,
    fallbacks.PART,
)


class LeaseTerm(Protocol):
    """What the elector hands over."""

    @property
    def epoch(self) -> int: ...

    @property
    def inherited(self) -> Mapping[str, str]: ...

    def is_held(self) -> bool: ...

    def annotate(self, notes: Mapping[str, str]) -> None: ...


class Watch(Protocol):
    """Shows every change of an object."""

    async def run(self) -> None: ...


class MakeWatch(Protocol):
    """Makes the watch of a term, whose observations go to these callbacks."""

    def __call__(
        self,
        term: TermContext,
        *,
        observe: Callable[[Observed], None],
        observe_run: Callable[[Observed], None],
        observe_set: Callable[[Observed], None],
    ) -> Watch: ...


def lease_name(chosen: settings.OperatorSettings) -> str:
    """The name of the Lease that elects a leader."""
    return f"{chosen.installation}-operator"


class Leadership:
    """Makes and runs the services of each term.

    Args:
        settings: of the operator.
        api: the API server.
        queue: the delay queue, started.
        watch: makes the watch of each term: kopf's, or that of an API server in memory.
        health: takes the state of each part while a term lasts.
        own_streams: what the installation allows of streams in our Redis.
        on_run: hears every event of a run.
    """

    def __init__(
        self,
        *,
        settings: settings.OperatorSettings,
        api: kube_port.Api,
        queue: DelayQueue,
        watch: MakeWatch,
        clock: Clock,
        health: services.Health,
        own_streams: ownstreams.OwnStreams = ownstreams.USUAL,
        timings: Timings = USUAL_TIMINGS,
        on_run: Callable[[RunEvent], None] | None = None,
    ) -> None:
        self._settings = settings
        self._api = api
        self._queue = queue
        self._watch = watch
        self._clock = clock
        self._health = health
        self._own_streams = own_streams
        self._timings = timings
        self._on_run = on_run
        self._is_identified = False
        self._dry_runs = DryRuns(api)
        self._others = OtherInstalls(
            own=f"{settings.namespace}/{lease_name(settings)}", api=api, clock=clock, health=health
        )

    async def work(self, term: LeaseTerm) -> None:
        """The work of one term; ends by cancellation, or by an error that a new term mends."""
        epoch = messages.Epoch(term.epoch)
        report = installationstate.InstallationReport(
            queue=self._queue, clock=self._clock, health=self._health, annotate=term.annotate
        )
        reporting = asyncio.create_task(report.run())  # nothing of the term waits for it
        try:
            layout = await self._open(epoch, partitioner.layout_of(term.inherited))
            await faults.reach(FaultPoint.AFTER_INDEX_OPENED)
            term.annotate(partitioner.note_of(layout))
            telemetry.logger.info("term begins", epoch=epoch, shards=layout.shards)
            await terms.wait_for_time(self._clock)
            await self._run(layout, epoch, term)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            for part in PARTS:
                self._health.well(part)

    async def _open(self, epoch: messages.Epoch, noted: messages.Layout | None) -> messages.Layout:
        """The index that exists; an empty Redis is cut as it was before, not as is set now."""
        shards = self._settings.shards
        # Not a work queue: nothing of the term runs before this has an answer, which is returned.
        waits = services.backoff(first_seconds=0.2, most_seconds=5.0)
        while True:
            try:
                if not self._is_identified:
                    found = await clusters.identity(self._api, self._settings.namespace)
                    owner = layouts.Owner(cluster=found.cluster, home=found.home)
                    self._queue.layouts.belong_to(owner)
                    self._is_identified = True
                    self._health.well("resync")
                serverhealth.report(await self._queue.health.problems(fills=True), self._health)
                layout = await self._queue.membership.open(
                    shards, epoch, noted=noted, by=self._others.own
                )
                if layout.former is None:
                    await self._queue.resharding.open_own(layout, epoch)
            except (errors.TryLater, kube_errors.ApiError) as trouble:
                part = "queue" if self._is_identified else "resync"  # of the API server
                if self._health.unwell(part, str(trouble)):
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

    async def _run(self, layout: messages.Layout, epoch: messages.Epoch, lease: LeaseTerm) -> None:
        """Everything that a term does, until one of its services fails."""
        api = TermApi(self._api, lease.is_held)
        recorder = events.Recorder(api, self._clock, "operator")
        term = TermContext(
            api=api,
            queue=self._queue,
            epoch=epoch,
            clock=self._clock,
            health=self._health,
            namespaces=self._settings.watch_namespaces,
            installation=self._others.own,
            writes_per_second=self._settings.status_writes_per_second,
            record=recorder.note,
        )
        followers = TermServices(
            term,
            dry_runs=self._dry_runs,
            own_streams=self._own_streams,
            others=self._others,
        )
        maintenance = Maintenance(
            term,
            followers,
            layout=layout,
            timings=self._timings,
        )
        subscribe(
            term.events,
            followers,
            maintenance,
            annotate=lambda changed: lease.annotate(partitioner.note_of(changed)),
            on_run=self._on_run,
        )
        watch = self._watch(
            term,
            observe=followers.observations.observe,
            observe_run=followers.run_reads.observe,
            observe_set=followers.sets.observe,
        )
        resynced = maintenance.resync.first_done
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run())
            group.create_task(self._others.run(recorder.note))
            for run in (watch.run, *followers.from_the_start(), *maintenance.from_the_start()):
                group.create_task(run())
            for run in (*followers.once_resynced(), maintenance.sweeper.run):
                group.create_task(_after(resynced, run))


async def _after(ready: asyncio.Event, run: Run) -> None:
    await ready.wait()
    await run()
