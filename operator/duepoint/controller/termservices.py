"""The services of a term, made in the order of who needs whom; ``subscribe``: who hears of what.

Four groups: Schedules and their statuses, runs and Jobs, the comparison with all objects, and the
maintenance of the index. ``leadership`` runs them; tests make them over a fake API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from duepoint.controller.jobs.completions import Completions
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.maintenance import partitioner
from duepoint.controller.maintenance.fallbacks import Fallbacks
from duepoint.controller.maintenance.indexwatch import LOOK_SECONDS, IndexWatch, QueueGauges
from duepoint.controller.maintenance.otherinstalls import OtherInstalls
from duepoint.controller.maintenance.overdue import Endings
from duepoint.controller.maintenance.sweeper import EVERY_SECONDS, Sweeps
from duepoint.controller.scheduleruns.runreads import RunReads
from duepoint.controller.scheduleruns.scheduleruns import ScheduleRuns
from duepoint.controller.schedules.dryruns import DryRuns
from duepoint.controller.schedules.observations import Observations
from duepoint.controller.schedules.reconcile import Reconcile
from duepoint.controller.schedules.reconcilequeue import ReconcileQueue
from duepoint.controller.schedules.resync import Comparison, Resync
from duepoint.controller.schedulesets.schedulesets import ScheduleSets
from duepoint.controller.status.outcomes import Outcomes
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.term import TermContext, TermEvents
from duepoint.delayqueue import messages
from duepoint.runs.run import RunEvent
from duepoint.schedules import ownstreams

#: All objects are compared with the queue so often, for what a watch may have missed.
_RESYNC_SECONDS = 600.0

#: The life of a service; ends by cancellation or by an error.
Run = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Rhythms of a term, in seconds: looks at the index, and walks over it."""

    look_seconds: float = LOOK_SECONDS
    sweep_seconds: float = EVERY_SECONDS


USUAL_TIMINGS = Timings()


class TermServices:
    """All services of a term but the watch.

    Args:
        dry_runs, others: kept from term to term.
        own_streams: what the installation allows of streams in our Redis.

    Attributes:
        listed: every Schedule has been offered once, or could not be listed.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        dry_runs: DryRuns,
        own_streams: ownstreams.OwnStreams,
        others: OtherInstalls,
    ) -> None:
        self._term = term
        self.others = others
        self.listed = asyncio.Event()
        self.reconcile = Reconcile(term, dry_runs=dry_runs, own_streams=own_streams)
        self._follow_schedules()
        self._follow_runs()
        self.sets = ScheduleSets(term, dry_runs=dry_runs, own_streams=own_streams)

    def _follow_schedules(self) -> None:
        """Observations of Schedules go to the queue; reports and outcomes to the statuses."""
        term = self._term
        self.states = states = ScheduleStates(self.reconcile.stored)
        self.reporter = reporter = Reporter(
            term, states=states, is_arming=lambda: not self.listed.is_set()
        )
        self.outcomes = Outcomes(term, reporter=reporter)
        self.observations = Observations(term, reconcile=self.reconcile, reporter=reporter)
        self.reconcile_queue = ReconcileQueue(
            term, observations=self.observations, reconcile=self.reconcile, reporter=reporter
        )
        self.comparison = Comparison(
            term,
            observations=self.observations,
            note_collision=self.reconcile.collisions.__setitem__,
            listed=self.listed,
        )

    def _follow_runs(self) -> None:
        """ScheduleRuns, the Jobs of all runs, and what a server that went back has lost of them."""
        term, catch_up = self._term, self.outcomes.catch_up
        self.runs = ScheduleRuns(term, definitions=self.reconcile.stored, catch_up=catch_up)
        self.run_reads = RunReads(
            term, is_wanted=self.runs.is_wanted, offer=self.runs.offer, remove=self.runs.remove
        )
        self.jobs = JobWatch(
            term,
            reporter=self.reporter,
            keeps=self.runs.states.keeps,
            catch_up=catch_up,
        )
        self.completions = Completions(
            term,
            definitions=self.states.definition,
            is_waited_for=self.runs.states.has_waiting,
        )
        self.fallbacks = Fallbacks(
            term,
            endings=Endings(states=self.states, jobs=self.jobs, runs=self.runs.states),
            reporter=self.reporter,
            catch_up=catch_up,
            ready=self.jobs.listed.wait,
        )

    def from_the_start(self) -> tuple[Run, ...]:
        """What runs as soon as the term begins."""
        return (
            self.reconcile_queue.run,
            self.observations.run,
            self.reporter.run,
            self.run_reads.run,
            self.sets.run,
        )

    def once_resynced(self) -> tuple[Run, ...]:
        """What runs once every object was compared: a status needs its object."""
        return (
            self.outcomes.run,
            self.jobs.run,
            self.runs.run,
            self.completions.run,
            self.fallbacks.run,
        )


class Maintenance:
    """The services that compare everything again and again, and keep the index in order."""

    def __init__(
        self,
        term: TermContext,
        services: TermServices,
        *,
        layout: messages.Layout,
        timings: Timings,
    ) -> None:
        self.resync = Resync(
            term,
            compare=services.comparison.run,
            every_seconds=_RESYNC_SECONDS,
            listed=services.listed,
        )
        self.sweeper = Sweeps(
            term, watermark_us=services.states.watermark_us, every_seconds=timings.sweep_seconds
        )
        self.partitioner = partitioner.Partitioner(term, count_sets=services.sets.count_all)
        queue, reconcile_queue = term.queue, services.reconcile_queue
        self.index = IndexWatch(
            term,
            layout=layout,
            outages=lambda: reconcile_queue.outages + self.sweeper.outages + queue.health.upheavals,
            look_seconds=timings.look_seconds,
        )
        self.gauges = QueueGauges(term)

    def from_the_start(self) -> tuple[Run, ...]:
        """What runs as soon as the term begins; the sweep waits for the first resync."""
        return (
            self.resync.run,
            self.index.run,
            self.partitioner.run,
            self.gauges.run,
        )


def subscribe(
    events: TermEvents,
    services: TermServices,
    maintenance: Maintenance | None = None,
    *,
    annotate: Callable[[messages.Layout], object] = lambda _layout: None,
    on_run: Callable[[RunEvent], object] | None = None,
) -> None:
    """Who hears of what; the order of subscribers is the order of calls.

    Args:
        maintenance: None = the services are tried without it.
        annotate: notes a layout on the Lease.
        on_run: hears of each event of a run; None = this process shows them to none.
    """
    runs, sets, jobs = services.runs, services.sets, services.jobs
    events.schedule_applied.subscribe(runs.schedule_changed)
    events.schedule_leaving.subscribe(runs.schedule_leaves)
    events.schedule_widened.subscribe(services.completions.widen)
    events.objects_compared.subscribe(sets.request)

    events.run_changed.subscribe(runs.event)
    if on_run is not None:
        events.run_changed.subscribe(lambda event, _ack: on_run(event))
    events.run_started.subscribe(jobs.run_started)
    events.run_replacing.subscribe(jobs.deleted.announce)
    events.slot_withdrawn.subscribe(services.reporter.withdrawn)
    events.job_ended.subscribe(services.completions.job_ended)
    events.jobs_released.subscribe(jobs.history.look)
    events.template_proven.subscribe(services.observations.prove)

    events.status_written.subscribe(jobs.history.look)
    events.generation_refused.subscribe(services.observations.refuse)
    events.mark_replaced.subscribe(services.others.suspect)

    events.doubt_found.subscribe(services.fallbacks.look)
    events.claims_lost.subscribe(jobs.history.late.record_lost_claims)
    events.index_suspected.subscribe(sets.request)
    events.layout_changed.subscribe(lambda _layout: sets.request(), annotate)
    if maintenance is None:
        return
    events.objects_compared.subscribe(maintenance.sweeper.compared, runs.request)
    events.doubt_found.subscribe(maintenance.index.look)
    events.index_suspected.subscribe(
        maintenance.sweeper.suspect, maintenance.resync.request, services.fallbacks.look
    )
    events.index_damaged.subscribe(maintenance.resync.request)
    events.layout_read.subscribe(maintenance.partitioner.look)
    events.watch_listed.subscribe(maintenance.resync.request)
