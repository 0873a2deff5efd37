"""Which finished Jobs are too many.

Successful and failed ones have limits of their own, regular, manual and backfilled ones together;
those go first that were made first. A Job is the proof that its slot ran, so it may go only once
nobody will ask for that slot again: a regular one when its slot has ended *as the API server has
it*, at or below the watermark and not open; one that a ScheduleRun wanted when the queue holds that
slot no more. So where an older slot waits for a quota that finished Jobs of later slots use up,
those Jobs go, and the older slot is created. Pure.
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
        has_ended: whether a regular slot has ended by the status that is written.
        wanted_us: slots that ScheduleRuns still want.
    """

    def is_over(job: FinishedJob) -> bool:
        if job.is_wanted:
            return job.slot_us not in wanted_us
        return has_ended(job.slot_us)

    return tuple(job for job in too_many(finished, policy) if is_over(job))
