"""Finished Jobs beyond the history limits are deleted, in the background.

Successful and failed Jobs have limits of their own, regular, manual and backfilled ones together;
the oldest go first. A Job is the proof that its slot ran, so it may go only once nothing will ask
for that slot again: a regular one when its slot has ended *by the published status*, at or below
the watermark and not open; one that a ScheduleRun wanted when the queue holds that slot no more. So
where an older slot waits for a quota that finished Jobs of later slots use up, those Jobs go, and
the older slot gets its Job.

Nor does a Job go before the status shows how it ended: a leader that takes over would find it shown
as running, and gone. Nor while a request that may create it once more is under way
(``laterequests``). Suspended and refused Schedules are cleaned too.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs.jobstate import FinishedJob, JobState
from duepoint.controller.jobs.laterequests import LateRequests
from duepoint.controller.schedules.workqueue import WorkQueue
from duepoint.controller.status.states import ScheduleStates
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, port
from duepoint.schedules.definition import Definition
from duepoint.schedules.rule import Policy

_CLEANERS = 2
#: A slot that a ScheduleRun wants and whose Job has ended is settled within moments.
_WANTED_AGAIN_SECONDS = 30.0
#: Whatever a worker had claimed when a Schedule was refused has ended after this.
_IN_FLIGHT_US = 600_000_000

#: The slots of a schedule that the queue holds because of ScheduleRuns; raises TryLater.
Wanted = Callable[[Definition], Awaitable[frozenset[int]]]


def too_many(finished: Iterable[FinishedJob], policy: Policy) -> tuple[FinishedJob, ...]:
    """The Jobs beyond the limits, oldest first."""
    listed = sorted(finished, key=lambda job: (job.created_us, job.slot_us, job.name))
    groups = (
        ([job for job in listed if job.succeeded], policy.successful_limit),
        ([job for job in listed if not job.succeeded], policy.failed_limit),
    )
    return tuple(job for group, limit in groups for job in group[: max(0, len(group) - limit)])


def excess(
    finished: Iterable[FinishedJob],
    policy: Policy,
    has_ended: Callable[[int], bool],
    wanted_us: Collection[int] = (),
) -> tuple[FinishedJob, ...]:
    """The Jobs to delete now, oldest first.

    Args:
        finished: all of one schedule.
        policy: its limits.
        has_ended: whether a regular slot has ended by the published status.
        wanted_us: slots that ScheduleRuns still want.
    """

    def is_over(job: FinishedJob) -> bool:
        if job.is_wanted:
            return job.slot_us not in wanted_us
        return has_ended(job.slot_us)

    return tuple(job for job in too_many(finished, policy) if is_over(job))


class History:
    """The service; one for each term of a leader.

    Args:
        wanted: the slots of a schedule that ScheduleRuns still want; raises TryLater.
        keeps: whether a finished Job (namespace, name) must stay for its ScheduleRun.

    Attributes:
        late: the requests that may create a Job once more.
    """

    def __init__(
        self,
        *,
        api: port.Api,
        clock: Clock,
        job_state: JobState,
        states: ScheduleStates,
        wanted: Wanted,
        keeps: Callable[[str, str], bool],
    ) -> None:
        self._api = api
        self._clock = clock
        self._job_state = job_state
        self._states = states
        self._wanted = wanted
        self._keeps = keeps
        self.late = LateRequests()
        self._work: WorkQueue[str] = WorkQueue(clock)
        self._waits: dict[str, Iterator[float]] = {}

    async def run(self) -> None:
        """Delete until cancelled."""
        await self._work.run(self._clean, _CLEANERS)

    def look(self, schedule_uid: str) -> None:
        """There may be Jobs of this Schedule to delete."""
        if self._finished(schedule_uid):
            self._work.put(schedule_uid, schedule_uid)

    def _finished(self, schedule_uid: str) -> tuple[FinishedJob, ...]:
        owner = self._states.owner(schedule_uid)
        return () if owner is None else self._job_state.finished(owner)

    async def _clean(self, schedule_uid: str) -> float | None:
        try:
            again = await self._delete_excess(schedule_uid)
        except (kube_errors.ApiError, errors.TryLater) as trouble:
            telemetry.logger.debug("history not cleaned", uid=schedule_uid, error=str(trouble))
            return next(self._waits.setdefault(schedule_uid, _backoff()))
        except Exception as bug:  # noqa: BLE001 - a bug in one Schedule must not stop the others
            telemetry.logger.error("history not cleaned", uid=schedule_uid, exc_info=bug)
            return next(self._waits.setdefault(schedule_uid, _backoff()))
        self._waits.pop(schedule_uid, None)
        return again

    async def _delete_excess(self, schedule_uid: str) -> float | None:
        """Seconds until the next look, where no event may announce a change before."""
        finished = self._finished(schedule_uid)
        if not finished:
            return None
        known = await self._states.definition(schedule_uid)
        if known is None:
            keeps = self._states.refused_keeps(schedule_uid)
            return None if keeps is None else await self._delete_of_refused(schedule_uid, keeps)
        policy = known.rule.policy
        is_any_wanted = any(job.is_wanted for job in too_many(finished, policy))
        wanted_us = await self._wanted(known) if is_any_wanted else frozenset()
        has_ended = functools.partial(self._states.has_ended, schedule_uid)
        late = await self._delete(schedule_uid, excess(finished, policy, has_ended, wanted_us))
        return late if late is not None or not wanted_us else _WANTED_AGAIN_SECONDS

    async def _delete_of_refused(self, schedule_uid: str, keeps: Policy) -> float | None:
        """The queue holds nothing of it, so only slots that were claimed before are tried again."""
        over_us = self._clock.now_us() - _IN_FLIGHT_US
        finished = too_many(self._finished(schedule_uid), keeps)
        ended = [
            job
            for job in finished
            if job.slot_us <= over_us or self._states.has_ended(schedule_uid, job.slot_us)
        ]
        late = await self._delete(schedule_uid, ended)
        return late if late is not None or len(ended) == len(finished) else _WANTED_AGAIN_SECONDS

    async def _delete(self, schedule_uid: str, finished: Iterable[FinishedJob]) -> float | None:
        """Seconds until the first that has to stay for a late request may go."""
        shown = self._states.published_jobs(schedule_uid)  # the next status causes another look
        first_us: int | None = None
        for job in finished:
            if job.name in shown or self._keeps(job.namespace, job.name):
                continue
            until_us = self.late.stays_until_us(job)
            if until_us > self._clock.now_us():
                first_us = until_us if first_us is None else min(first_us, until_us)
                continue
            await jobs.delete(self._api, job.namespace, job.name, job.uid)
            self.late.record_gone(schedule_uid, job.name, job.uid, self._clock.now_us())
            if (owner := self._states.owner(schedule_uid)) is not None:
                self._job_state.record_deletion(owner, job.uid)
        if first_us is None:
            return None
        return min(max((first_us - self._clock.now_us()) / 1e6, 0.1), _WANTED_AGAIN_SECONDS)


def _backoff() -> Iterator[float]:
    return services.backoff(first_seconds=0.5, most_seconds=30.0)
