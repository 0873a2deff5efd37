"""Jobs that get no Pods, reported on their Schedules.

The Job controller tries for ever to create Pods that are refused, and neither the Job nor its
owner shows that. This service notes the Schedules that have a Job without Pods; after a while
it reads the Job controller's Events about the oldest such Job and reports what they say. It looks
again, ever less often, until the Job has Pods, has ended or is gone. A cluster where Jobs get their
Pods sees no request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from duepoint import services, telemetry
from duepoint.controller.jobs.jobstate import JobWithoutPods, WatchedJobs
from duepoint.controller.status import events as changes
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.status.texts import instant
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import errors as kube_errors
from duepoint.kube import pods

#: A Job controller that works creates the Pods of a Job within this.
PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.1
#: Characters of the Job controller's message.
_MESSAGE_LIMIT = 600


class JobsWithoutPods:
    """The service; one for each term of a leader."""

    def __init__(self, term: TermContext, *, watched: WatchedJobs, reporter: Reporter) -> None:
        self._term = term
        self._watched = watched
        self._reporter = reporter
        self._reported: set[str] = set()
        self._waits: dict[str, Iterator[float]] = {}
        self._work: WorkQueue[str] = WorkQueue(term.clock, "pods of jobs not looked at")

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._work.run(self._look, 1)

    def look(self, schedule_uid: str) -> None:
        """A Job of this Schedule has changed."""
        has_some = self._oldest(schedule_uid) is not None
        if schedule_uid in self._reported or schedule_uid in self._waits:
            if not has_some:
                self._work.put(schedule_uid, schedule_uid)
        elif has_some:
            self._waits[schedule_uid] = services.backoff(first_seconds=60, most_seconds=600)
            self._work.put(schedule_uid, schedule_uid)

    def _oldest(self, schedule_uid: str) -> JobWithoutPods | None:
        owner = self._reporter.states.owner(schedule_uid)
        return None if owner is None else self._watched.without_pods(owner)

    async def _look(self, schedule_uid: str) -> float | None:
        job = self._oldest(schedule_uid)
        if job is None:
            self._waits.pop(schedule_uid, None)
            if schedule_uid in self._reported:
                self._reported.discard(schedule_uid)
                self._reporter.pods_refused(schedule_uid, None, "")
            return None
        age_seconds = (self._term.clock.now_us() - job.since_us) / 1e6
        if age_seconds < PATIENCE_SECONDS:
            return min(PATIENCE_SECONDS, PATIENCE_SECONDS - age_seconds)
        refusal = await self._refusal(job)
        if refusal is not None and self._oldest(schedule_uid) == job:
            self._reported.add(schedule_uid)
            about = changes.job(job.namespace, job.name, job.uid)
            self._reporter.pods_refused(schedule_uid, about, _message(job, refusal))
        await self._term.clock.sleep(_PAUSE_SECONDS)  # one quota may leave many Jobs without Pods
        return next(self._waits[schedule_uid])

    async def _refusal(self, job: JobWithoutPods) -> str | None:
        """The newest refusal of its Pods, "" = unknown; None where it cannot be read now."""
        try:
            return await pods.newest_pod_refusal(self._term.api, job.namespace, job.uid)
        except kube_errors.Forbidden:
            return ""  # the rights of an older release; the report goes without the reason
        except kube_errors.ApiError as trouble:
            telemetry.logger.debug("refusals of pods not read", job=job.name, error=str(trouble))
            return None


def _message(job: JobWithoutPods, refusal: str) -> str:
    beginning = f"Job {job.name} has no Pod since {instant(job.since_us)}"
    if not refusal:
        look = f"kubectl describe job -n {job.namespace} {job.name}"
        return f"{beginning}; `{look}` may say why"
    # Each attempt names another Pod; a message that changes with it would be new for ever.
    text = re.sub(rf' "{re.escape(job.name)}-[^"]*"', "", refusal.strip())[:_MESSAGE_LIMIT]
    advice = pods.pod_advice(refusal)
    return f"{beginning}: {text}; {advice}; it goes on by itself then, or delete the Job"
