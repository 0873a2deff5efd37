"""What has become of slots, by everybody but the queue: statuses, what is remembered, and Jobs.

The queue may have lost what it knew of them. What is told here is told by somebody who cannot go
back with it. No I/O.
"""

from __future__ import annotations

from typing import Protocol

from duepoint.controller.status.states import ScheduleStates
from duepoint.kube import jobbuilder, jobs
from duepoint.runs.watermark import Watermark
from duepoint.schedules.definition import Definition


class Jobs(Protocol):
    """What is known of Jobs."""

    def has(self, owner: jobs.JobOwner, job_name: str) -> bool:
        """Whether the Schedule has a Job of that name."""
        ...


class Runs(Protocol):
    """What is known of ScheduleRuns."""

    def has_ended(self, run_uid: str, slot_us: int) -> bool | None:
        """Whether a slot of a run has ended; None = that is not known yet."""
        ...


class Endings:
    """``comparing.Knowledge`` of a leader."""

    def __init__(self, *, states: ScheduleStates, jobs: Jobs, runs: Runs) -> None:
        self._states = states
        self._jobs = jobs
        self._runs = runs

    def settled(self, uid: str) -> Watermark | None:
        return self._states.settled(uid)

    def has_ended(self, known: Definition, slot_us: int) -> bool:
        of_job = known.rule.whole_seconds
        if self._states.knows_end(known.uid, slot_us, of_job=of_job):
            return True
        # A Job's slot ends with its creation, whoever was answered.
        owner = jobs.JobOwner(known.namespace, known.name, known.uid)
        return of_job and self._jobs.has(owner, jobbuilder.name_of(known.name, slot_us))

    def is_told_as_ended(self, uid: str, slot_us: int) -> bool:
        return self._states.is_published_as_ended(uid, slot_us)

    def run_has_ended(self, run_uid: str, slot_us: int) -> bool | None:
        return self._runs.has_ended(run_uid, slot_us)

    def started(self, uid: str) -> int:
        return self._states.started(uid)
