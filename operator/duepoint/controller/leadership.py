"""The work of a leader: creates and runs the services of each term.

A term opens the index with its epoch and then runs its services side by side: the watch, the
reconcile queues, the reporter and the resync; and, after the first complete resync, the outcomes,
the Jobs, the ScheduleRuns and the sweep. Each term creates its own services and awaits them when it
ends, so nothing outlives the term. A standby has no services and does nothing. Firing does not
depend on a leader: without one, statuses are late and nothing is repaired, but every slot still
runs on time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from duepoint import faults, services, settings, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs.jobsync import JobSync
from duepoint.controller.maintenance import indexwatch, partitioner
from duepoint.controller.maintenance import installation as installations
from duepoint.controller.maintenance.indexwatch import IndexWatch
from duepoint.controller.maintenance.installation import OtherInstalls
from duepoint.controller.maintenance.partitioner import Partitioner
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import scheduleruns
from duepoint.controller.scheduleruns.scheduleruns import ScheduleRuns
from duepoint.controller.schedules.dryruns import DryRuns
from duepoint.controller.schedules.reconcile import Reconciler
from duepoint.controller.schedules.resync import Resync
from duepoint.controller.schedules.store import Store
from duepoint.controller.schedulesets import schedulesets
from duepoint.controller.schedulesets.schedulesets import ScheduleSets
from duepoint.controller.status.outcomes import Outcomes
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import layouts, ledger, messages, serverhealth
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.election.elector import Term
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import events, installation, port
from duepoint.kube import schedules as kube_schedules
from duepoint.runs.run import RunEvent

#: Runs a service until it is cancelled or fails.
Run = Callable[[], Coroutine[Any, Any, None]]


#: The parts of a leader's health; they count as well when the term ends.
PARTS = (
    "queue",
    serverhealth.PART,
    "watch",
    "resync",
    "status",
    "jobs",
    "outcomes",
    "partition",
    indexwatch.SWEEP_PART,
    scheduleruns.PART,
    schedulesets.PART,
)


#: Watches the objects during a term, and passes every change to ``TermServices.observers``.
Watch = Callable[[TermContext], Coroutine[Any, Any, None]]


class TermApi:
    """An API client for one term: refuses to write once the Lease is no longer trusted.

    When a paused process wakes up, its event loop runs the tasks that were due before it learns
    that the term is over. Such a write could overwrite what the new leader has written, and nothing
    would correct it.

    Args:
        is_held: whether the process may act as the leader, by the clock and not by what the event
            loop has noticed.
    """

    def __init__(self, api: port.Api, is_held: Callable[[], bool]) -> None:
        self._api = api
        self._is_held = is_held
        self.list_pages = api.list_pages
        self.watch = api.watch

    async def request(self, verb: str, path: str, *args: Any, **named: Any) -> bytes:  # noqa: ANN401
        """Send the request; a write after the term raises Unavailable and is not sent."""
        if verb != "GET" and not self._is_held():
            raise kube_errors.Unavailable(
                f"{verb} {path}: this process is no longer the leader", sent=False
            )
        return await self._api.request(verb, path, *args, **named)


class TermServices:
    """All services of a term except the watch, created in the order of their dependencies.

    Args:
        layout: how the index is divided into shards.
        others: kept from term to term.
        records: the records in the ledger.

    Attributes:
        observers: by kind (plural), what the watch calls with each change.
        running: the services to run, beside those of ``maintenance``.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        layout: messages.Layout,
        others: OtherInstalls,
        records: ledger.Records,
    ) -> None:
        term.services = self
        self.others = others
        self.dry_runs = DryRuns(term.api, term.queue.streams)

        # Schedules, and the outcomes of their runs.
        self.reconciler = Reconciler(term)
        self.reporter = Reporter(term)
        self.states = self.reporter.states
        self.outcomes = Outcomes(term, found=records)
        self.store = Store(term)
        self.resync = Resync(term)

        # ScheduleRuns, the Jobs of all runs, and ScheduleSets.
        self.runs = ScheduleRuns(term)
        self.jobs = JobSync(term)
        self.sets = ScheduleSets(term)

        # Maintenance of the index.
        self.partitioner = Partitioner(term)
        self.index = IndexWatch(term, layout=layout)

        self.observers: Mapping[str, Callable[[Observed], None]] = {
            kube_schedules.PLURAL: self.store.observe,
            kube_schedules.RUN_PLURAL: self.runs.observe,
            kube_schedules.SET_PLURAL: self.sets.observe,
        }
        self.running: tuple[Run, ...] = (
            self.reconciler.run,
            self.reporter.run,
            self.sets.run,
            self.runs.run,
            self.outcomes.run,
            self.jobs.run,
        )
        self.maintenance: tuple[Run, ...] = (
            self.resync.run,
            self.index.run,
            self.partitioner.run,
            self.index.sweep,
            functools.partial(indexwatch.export_gauges, term),
        )


def lease_name(chosen: settings.OperatorSettings) -> str:
    """Return the name of the Lease that elects a leader."""
    return f"{chosen.installation}-operator"


@dataclass(kw_only=True, eq=False)
class Leadership:
    """Creates and runs the services of each term.

    Args:
        settings: the operator's settings.
        api: the API server.
        queue: the delay queue, started.
        watch: runs in each term: kopf's watch, or that of an in-memory API server.
        health: receives the state of each part during a term.
        has_own_streams: whether the installation has streams in our Redis.
        on_run: called with every run event.
    """

    settings: settings.OperatorSettings
    api: port.Api
    queue: DelayQueue
    watch: Watch
    clock: Clock
    health: services.Health
    has_own_streams: bool = True
    on_run: Callable[[RunEvent], None] = lambda _event: None

    def __post_init__(self) -> None:
        self._is_identified = False
        own = f"{self.settings.namespace}/{lease_name(self.settings)}"
        self._others = OtherInstalls(own=own, clock=self.clock, health=self.health)

    async def work(self, term: Term) -> None:
        """Do the work of one term until cancelled, or until an error that a new term mends."""
        epoch = messages.Epoch(term.epoch)
        reporting = asyncio.create_task(  # no service waits for it
            installations.report(
                queue=self.queue, clock=self.clock, health=self.health, annotate=term.annotate
            )
        )
        try:
            await self._run(epoch, term)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            for part in PARTS:
                self.health.well(part)

    async def _identify(self) -> None:
        """Read which cluster this is, once; the index of another one is refused."""
        if not self._is_identified:
            found = await installation.identity(self.api, self.settings.namespace)
            self.queue.layouts.belong_to(layouts.Owner(cluster=found.cluster, home=found.home))
            self._is_identified = True

    async def _open(
        self, epoch: messages.Epoch, noted: messages.Layout | None
    ) -> tuple[messages.Layout, ledger.Records]:
        """Open the existing index; an empty Redis gets its former layout, not the one now set."""
        serverhealth.report(await self.queue.health.problems(fills=True), self.health)
        try:
            layout = await self.queue.membership.open(
                self.settings.shards, epoch, noted=noted, by=self._others.own
            )
        except queue_errors.Foreign:
            self._others.refused()
            raise
        if layout.former is None:
            await self.queue.resharding.open_own(layout, epoch)
        return layout, await self.queue.ledger().records()

    async def _run(self, epoch: messages.Epoch, lease: Term) -> None:
        """Open the index, and run all services of the term until one of them fails."""
        api = TermApi(self.api, lease.is_held)
        recorder = events.Recorder(api, self.clock, "operator")
        term = TermContext(
            api=api,
            queue=self.queue,
            epoch=epoch,
            clock=self.clock,
            health=self.health,
            namespaces=self.settings.watch_namespaces,
            installation=self._others.own,
            has_own_streams=self.has_own_streams,
            record=recorder.note,
            on_run=self.on_run,
            annotate=lease.annotate,
        )
        await term.until_done("resync", self._identify, "the API server cannot be asked")
        noted = partitioner.layout_of(lease.inherited)
        opening = functools.partial(self._open, epoch, noted)
        layout, records = await term.until_done("queue", opening, "index cannot be opened")
        await faults.reach(FaultPoint.AFTER_INDEX_OPENED)
        lease.annotate(partitioner.note_of(layout))
        telemetry.logger.info("term begins", epoch=epoch, shards=layout.shards)
        made = TermServices(term, layout=layout, others=self._others, records=records)
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run())
            group.create_task(self.watch(term))
            for run in (*made.running, *made.maintenance):
                group.create_task(run())
