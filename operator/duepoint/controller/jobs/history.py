"""Which finished Jobs are too many.

Successful and failed ones have limits of their own, regular, manual and backfilled ones together;
those go first that were made first. A Job is the proof that its slot ran, so it may go only once
nobody will ask for that slot again: a regular one when its slot lies at or below the watermark *as
the API server has it*, one that a ScheduleRun wanted when the queue holds that slot no more.

One exception: where the slot that holds the watermark waits for a quota, the Jobs of later slots
may be what uses the quota up, and would wait for each other for ever. Those whose slots have ended
go, too. Were the index lost in such a moment, such a slot could run again. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from duepoint.schedules.rule import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """A Job that has ended and still exists.

    Attributes:
        is_wanted: a ScheduleRun wanted it; the slot is not one of the regular sequence.
    """

    namespace: str
    name: str
    uid: str
    slot_us: int
    succeeded: bool
    created_us: int = 0
    is_wanted: bool = False


def _none(_slot_us: int) -> bool:
    return False


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
    settled_us: int,
    wanted_us: Collection[int] = (),
    ended_beyond: Callable[[int], bool] = _none,
) -> tuple[FinishedJob, ...]:
    """The Jobs to delete now, oldest first.

    Args:
        finished: all of one schedule.
        policy: its limits.
        settled_us: the watermark that is written.
        wanted_us: slots that ScheduleRuns still want.
        ended_beyond: under a quota, whether a slot above the watermark has ended.
    """

    def is_over(job: FinishedJob) -> bool:
        if job.is_wanted:
            return job.slot_us not in wanted_us
        return job.slot_us <= settled_us or ended_beyond(job.slot_us)

    return tuple(job for job in too_many(finished, policy) if is_over(job))
