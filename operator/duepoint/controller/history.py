"""Which finished Jobs are too many.

Successful and failed ones have limits of their own, oldest first. A Job is the proof that its slot
ran, so only those whose slot lies at or below the watermark *as the API server has it* may go:
nobody will ask for that slot again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.schedules.rule import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """A Job that has ended and still exists."""

    namespace: str
    name: str
    uid: str
    slot_us: int
    succeeded: bool


def excess(
    finished: Iterable[FinishedJob], policy: Policy, settled_us: int
) -> tuple[FinishedJob, ...]:
    """The Jobs to delete, oldest first."""
    listed = sorted(finished, key=lambda job: (job.slot_us, job.name))
    groups = (
        ([job for job in listed if job.succeeded], policy.successful_limit),
        ([job for job in listed if not job.succeeded], policy.failed_limit),
    )
    return tuple(
        job
        for group, limit in groups
        for job in group[: max(0, len(group) - limit)]
        if job.slot_us <= settled_us
    )
