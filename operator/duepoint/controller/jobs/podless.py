"""Jobs that get no Pods, told on their Schedules.

The Job controller tries for ever to create Pods that are refused, and neither the Job nor whoever
waits for it would say anything. Takes note of Schedules that have a Job without Pods; after a
while without any, asks for the Job controller's Events of the oldest of them, and tells the
reporter what was said. It is looked at again, ever less often, until the Job has Pods, has ended or
is gone. A cluster where Jobs get their Pods is asked nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from duepoint import services, telemetry
from duepoint.clock import Clock
from duepoint.controller.schedules.workqueue import WorkQueue
from duepoint.controller.status.statustext import instant
from duepoint.kube import errors as kube_errors
from duepoint.kube import events, podrefusals, port

#: A Job controller that works creates the Pods of a Job within this.
PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PodlessJob:
    """A Job that was begun at an instant and has had no Pod."""

    namespace: str
    name: str
    uid: str
    since_us: int

    def reference(self) -> events.Object:
        return events.Object(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            kind="Job",
            api_version="batch/v1",
        )


class Jobs(Protocol):
    """What is known of Jobs."""

    def podless(self, schedule_uid: str) -> PodlessJob | None:
        """The one of a Schedule that has been without Pods for longest."""
        ...


#: Told (uid of a Schedule, its Job, why it has no Pods); None and "" where none is without.
Tell = Callable[[str, PodlessJob | None, str], None]


class Podless:
    """The service; one for each term of a leader."""

    def __init__(self, *, api: port.Api, clock: Clock, jobs: Jobs, tell: Tell) -> None:
        self._api = api
        self._clock = clock
        self._jobs = jobs
        self._tell = tell
        self._told: set[str] = set()
        self._waits: dict[str, Iterator[float]] = {}
        self._work: WorkQueue[str] = WorkQueue(clock)

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._work.run(self._look, 1)

    def note(self, schedule_uid: str) -> None:
        """A Job of this Schedule has changed."""
        if schedule_uid in self._told or schedule_uid in self._waits:
            is_mended = self._jobs.podless(schedule_uid) is None
            if is_mended:
                self._work.put(schedule_uid, schedule_uid)
        elif self._jobs.podless(schedule_uid) is not None:
            self._waits[schedule_uid] = services.backoff(first_seconds=60, most_seconds=600)
            self._work.put(schedule_uid, schedule_uid)

    async def _look(self, schedule_uid: str) -> float | None:
        job = self._jobs.podless(schedule_uid)
        if job is None:
            self._waits.pop(schedule_uid, None)
            if schedule_uid in self._told:
                self._told.discard(schedule_uid)
                self._tell(schedule_uid, None, "")
            return None
        age_seconds = (self._clock.now_us() - job.since_us) / 1e6
        if age_seconds < PATIENCE_SECONDS:
            return min(PATIENCE_SECONDS, PATIENCE_SECONDS - age_seconds)
        said = await self._said(job)
        if said is not None and self._jobs.podless(schedule_uid) == job:
            self._told.add(schedule_uid)
            self._tell(schedule_uid, job, _message(job, said))
        await self._clock.sleep(_PAUSE_SECONDS)  # many may be without Pods for one quota
        return next(self._waits[schedule_uid])

    async def _said(self, job: PodlessJob) -> str | None:
        """What was said of it; None where that cannot be asked now."""
        try:
            return await podrefusals.newest(self._api, job.namespace, job.uid)
        except kube_errors.Forbidden:
            return ""  # rights of an older release: it is told without the reason
        except kube_errors.ApiError as trouble:
            telemetry.logger.debug("refusals of pods not read", job=job.name, error=str(trouble))
            return None


def _message(job: PodlessJob, said: str) -> str:
    begun = f"Job {job.name} has no Pod since {instant(job.since_us)}"
    if not said:
        look = f"kubectl describe job -n {job.namespace} {job.name}"
        return f"{begun}; `{look}` may tell why"
    # Each try has a Pod's name of its own; a message that changes with it would be news for ever.
    told = re.sub(rf' "{re.escape(job.name)}-[^"]*"', "", said.strip())[:_MOST_SAID]
    return (
        f"{begun}: {told}; {podrefusals.advice(said)}; it goes on by itself then, or delete the Job"
    )


_MOST_SAID = 600
