"""An existing Job of a Schedule, and the run events that follow from a Job.

A Job that disappeared before we saw its end counts as a failed run, because nothing shows that the
work was completed. The one exception is a Job that Duepoint deleted itself in favour of a newer
slot. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from duepoint.kube import jobbuilder, jobs, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs.run import REGULAR, RunEvent, RunState
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Reason

# How a run ended although nobody saw its Job end.
#: The Job does not exist; it may have ended before it was deleted.
LOST = "the Job is gone, and its end was not seen"
#: The Job exists, but is no longer a run of the Schedule.
RELEASED = "the Job was released: its owner reference or slot was removed, and its end is not seen"


def start_of(job: jobs.Job, owner: JobOwner, slot_us: int, pod_end: str = "") -> RunEvent:
    """Return the start event of an existing Job; if it is bound to fail, with the cause.

    Args:
        pod_end: how its Pod ended, if that says more than the Job does; empty = unknown.
    """
    at_us = created_us(job)
    failing = jobs.failing(job)
    return RunEvent(
        uid=owner.uid,
        namespace=owner.namespace,
        name=owner.name,
        generation=0,
        slot_us=slot_us,
        trigger=trigger(job),
        state=RunState.RUNNING,
        reason=Reason.RUNNING if failing is None else Reason.RUN_FAILED,
        message=""
        if failing is None
        else f"{pod_end or _why(failing)}; its Pods have not ended yet",
        at_us=at_us,
        started_us=at_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def end_of(
    job: jobs.Job, owner: JobOwner, slot_us: int, now_us: int, pod_end: str = ""
) -> RunEvent | None:
    """Return the end event of a Job; None = it has not ended. ``pod_end`` as for ``start_of``."""
    end = jobs.finished(job)
    if end is None:
        return None
    state, reason, message = RunState.SUCCEEDED, Reason.SUCCEEDED, ""
    if not end.succeeded:
        state, reason = RunState.FAILED, Reason.RUN_FAILED
        message = pod_end or _why(end)
    at_us = end.at_us or now_us
    return msgspec.structs.replace(
        start_of(job, owner, slot_us),
        state=state,
        reason=reason,
        message=message,
        at_us=at_us,
        finished_us=at_us,
    )


def _why(result: jobs.JobResult) -> str:
    return f"{result.reason}: {result.message}"


def trigger(job: jobs.Job) -> str:
    """Return ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``; ``Schedule`` if unknown."""
    word = (job.metadata.annotations or {}).get(jobbuilder.TRIGGER)
    return word if word is not None and word in _TRIGGERS else "Schedule"


_TRIGGERS = REGULAR | {manualruns.TRIGGER_MANUAL, manualruns.TRIGGER_BACKFILL}


def created_us(job: jobs.Job) -> int:
    """Return when the API server created the Job; 0 = unknown."""
    text = job.metadata.creation_timestamp
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0


@dataclass(slots=True, kw_only=True)
class OwnedJob:
    """An existing Job of a Schedule.

    Attributes:
        succeeded: whether it succeeded or failed; None = it is active.
        is_leaving: whether it is being deleted; history ignores it then.
        without_pods_us: since when it could have had Pods; None = it has some, or cannot.
        pod_end: how its Pod ended, read when it was bound to fail; empty = unknown.
    """

    owner: JobOwner
    name: str
    uid: str
    slot_us: int
    trigger: str = "Schedule"
    created_us: int = 0
    succeeded: bool | None = None
    is_leaving: bool = False
    without_pods_us: int | None = None
    pod_end: str = ""

    @property
    def namespace(self) -> str:
        return self.owner.namespace

    @property
    def is_wanted(self) -> bool:
        """Whether a ScheduleRun created it, so that its slot is not a regular one."""
        return self.trigger not in REGULAR
