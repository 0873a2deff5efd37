"""Runs whose Jobs are gone without anybody having seen how they ended.

A Job may end and be deleted while no operator watches (by hand, by its time to live), and a worker
may tell of a Job that the watch never shows. Such a run would be shown as running for ever. What
should be there and is not is asked for once, after a while in which the watch may catch up; a Job
that does not exist has failed as far as anybody knows. A calm cluster is asked nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from duepoint import errors, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs import gone
from duepoint.controller.jobs.gone import TellGone
from duepoint.controller.jobs.unended import Unended
from duepoint.controller.schedules.workqueue import WorkQueue
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, port
from duepoint.runs.run import RunEvent, RunState

#: A watch shows a new Job within this, or is broken.
PATIENCE_SECONDS = 30.0
_CHECKERS = 2


class Sightings(Protocol):
    """What is known of Jobs."""

    def runs(self, owner: jobs.Owner, job_name: str) -> bool:
        """Whether a Job of that name of the Schedule is active, as far as the watch has told."""
        ...

    def see(self, job: jobs.Job) -> None:
        """This Job exists; if it has ended, its run has."""
        ...

    def is_over(self, run: Unended) -> bool:
        """Whether the run is not believed to be running any more."""
        ...

    def let_go(self, run: Unended) -> None:
        """Nothing more will be told of a run that is over."""
        ...


@dataclass(frozen=True, slots=True)
class _Doubt:
    run: Unended
    not_before: float


class LostJobs:
    """Asks for the Jobs that are missing; one for each term of a leader."""

    def __init__(
        self,
        *,
        api: port.Api,
        clock: Clock,
        sightings: Sightings,
        tell: TellGone,
    ) -> None:
        self._api = api
        self._clock = clock
        self._sightings = sightings
        self._tell = tell
        self._doubts: WorkQueue[_Doubt] = WorkQueue(clock)

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._doubts.run(self._look, _CHECKERS)

    def doubt(self, runs: Iterable[Unended], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """These are believed to be running; those that the watch does not show are asked for."""
        for run in runs:
            if not self._sightings.runs(_owner(run), run.job_name):
                not_before = self._clock.monotonic() + patience_seconds
                self._doubts.put(f"{run.namespace}/{run.job_name}", _Doubt(run, not_before))

    async def _look(self, doubt: _Doubt) -> float | None:
        run = doubt.run
        wait = doubt.not_before - self._clock.monotonic()
        if wait > 0:
            return wait
        if self._sightings.runs(_owner(run), run.job_name):
            return None
        if self._sightings.is_over(run):
            self._sightings.let_go(run)
            return None
        try:
            job = await jobs.find(self._api, run.namespace, run.job_name)
            if job is not None and jobs.is_run_of(job, _owner(run)):
                self._sightings.see(job)
            else:
                is_released = job is not None and jobs.is_released(job)
                why = gone.released() if is_released else gone.lost()
                lost = _lost(run, why, self._clock.now_us())
                await self._tell(lost, self._clock.monotonic())
        except (kube_errors.ApiError, errors.TryLater) as trouble:
            telemetry.logger.debug("a missing job was not asked for", error=str(trouble))
            return PATIENCE_SECONDS
        return None


def _owner(run: Unended) -> jobs.Owner:
    return jobs.Owner(run.namespace, run.schedule_name, run.uid)


def _lost(run: Unended, why: gone.Gone, now_us: int) -> RunEvent:
    return RunEvent(
        uid=run.uid,
        namespace=run.namespace,
        name=run.schedule_name,
        generation=0,
        slot_us=run.slot_us,
        trigger=run.trigger,
        state=RunState.FAILED,
        reason=why.reason,
        message=why.message,
        at_us=now_us,
        started_us=min(run.slot_us, now_us),  # or it would be the newest run, begun now
        finished_us=now_us,
        job_name=run.job_name,
    )
