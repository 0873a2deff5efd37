"""What a Job says of its run, as run events; and how a run ends whose Job went away.

A Job that went away before its end was seen is a failed run, because as far as is known the work
was not completed. The one exception is a Job that Duepoint deleted itself in favour of a newer
slot. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from duepoint.controller.term import RunningJob
from duepoint.kube import jobbuilder, jobs, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs.run import REGULAR, RunEvent, RunState
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Reason


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why a run ended without an end of its Job."""

    reason: Reason
    message: str


#: The watch saw the Job go.
DELETED = EndReason(Reason.DELETED, "the Job was deleted before it ended")
#: The Job does not exist; it may have ended before it was deleted.
LOST = EndReason(Reason.DELETED, "the Job is gone, and its end was not seen")
#: The Job exists and is no run of the Schedule any more.
RELEASED = EndReason(
    Reason.RELEASED,
    "the Job was released: its owner reference or slot was removed, and its end is not seen",
)


def started(job: jobs.Job, owner: JobOwner, slot_us: int, pod_end: str = "") -> RunEvent:
    """The run of a Job that exists; of one that is bound to fail, with the cause.

    Args:
        pod_end: how its Pod ended, where that says more than the Job does; empty = unknown.
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
        reason=Reason.CREATED if failing is None else Reason.JOB_FAILED,
        message=""
        if failing is None
        else f"{pod_end or _why(failing)}; its Pods have not ended yet",
        at_us=at_us,
        started_us=at_us,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
    )


def ended(
    job: jobs.Job, owner: JobOwner, slot_us: int, now_us: int, pod_end: str = ""
) -> RunEvent | None:
    """The end of a Job's run; None where it has not ended. ``pod_end`` as for ``started``."""
    end = jobs.finished(job)
    if end is None:
        return None
    state, reason, message = RunState.SUCCEEDED, Reason.SUCCEEDED, ""
    if not end.succeeded:
        state, reason = RunState.FAILED, Reason.JOB_FAILED
        message = pod_end or _why(end)
    at_us = end.at_us or now_us
    return msgspec.structs.replace(
        started(job, owner, slot_us),
        state=state,
        reason=reason,
        message=message,
        at_us=at_us,
        finished_us=at_us,
    )


def _why(result: jobs.JobResult) -> str:
    return f"{result.reason}: {result.message}"


def gone(job: jobs.Job, run: RunningJob, why: EndReason, now_us: int) -> RunEvent:
    """The end of a run whose Job was seen to go; no other event of it will come."""
    return msgspec.structs.replace(
        missing(run, why, now_us), started_us=created_us(job), job_uid=job.metadata.uid
    )


def missing(run: RunningJob, why: EndReason, now_us: int) -> RunEvent:
    """The end of a run whose Job was not found, or is none of its Schedule's any more."""
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
        started_us=min(run.slot_us, now_us),  # else it would be the newest run, begun now
        finished_us=now_us,
        job_name=run.job_name,
    )


def run_of(job: jobs.Job, owner: JobOwner, slot_us: int) -> RunningJob:
    """The run of a Job."""
    return RunningJob(
        uid=owner.uid,
        namespace=owner.namespace,
        schedule_name=owner.name,
        job_name=job.metadata.name,
        slot_us=slot_us,
        trigger=trigger(job),
    )


def trigger(job: jobs.Job) -> str:
    """``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``; any other word counts as none."""
    word = (job.metadata.annotations or {}).get(jobbuilder.TRIGGER)
    return word if word is not None and word in _TRIGGERS else "Schedule"


_TRIGGERS = REGULAR | {manualruns.TRIGGER_MANUAL, manualruns.TRIGGER_BACKFILL}


def created_us(job: jobs.Job) -> int:
    """When the API server created the Job; 0 where it does not say."""
    text = job.metadata.creation_timestamp
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0
