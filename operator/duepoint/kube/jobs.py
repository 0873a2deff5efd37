"""Jobs at the API server: whose run they are, how they ended; found, listed and deleted.

A Job is a Schedule's run where its controller is that Schedule, by namespace, name and uid, and
where it names its slot: a uid alone proves nothing, because every receiver is sent it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from duepoint.kube import port, schedules, times
from duepoint.kube.jobbuilder import SCHEDULE_LABEL, SCHEDULED_TIME
from duepoint.runs import run
from duepoint.schedules import points

#: Longest name of an object, and more than a uid has (36), in characters.
_NAME_LIMIT = 253
_UID_LIMIT = 64
#: Longest reason of a condition that is kept, in characters.
_REASON_LIMIT = 128


class Job(msgspec.Struct, frozen=True):
    """A Job as lists and watches show it; templates are left out."""

    metadata: port.Metadata
    status: JobStatus | None = None


class JobCondition(msgspec.Struct, frozen=True, rename="camel"):
    """One condition of a Job."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a Job, as far as its outcome goes."""

    conditions: tuple[JobCondition, ...] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a Job ended. ``at_us`` is None where the API server names no time."""

    succeeded: bool
    reason: str
    message: str
    at_us: int | None


def collection(namespace: str | None = None) -> str:
    """Path of all Jobs of a namespace, or of the cluster."""
    return port.path("/apis/batch/v1", namespace, "jobs")


def path(namespace: str, name: str) -> str:
    """Path of one Job."""
    return port.path("/apis/batch/v1", namespace, "jobs", name)


class JobOwner(NamedTuple):
    """A Schedule as the controller of Jobs: owners are in the namespace of what they own."""

    namespace: str
    name: str
    uid: str


def owner_of(job: Job) -> JobOwner | None:
    """The Schedule that the Job says it is controlled by, or None."""
    found = controlling(job.metadata)
    return None if found is None else JobOwner(job.metadata.namespace, found.name, found.uid)


def controlling(metadata: port.Metadata, kind: str = schedules.KIND) -> port.OwnerReference | None:
    """The Schedule, or the object of another kind of ours, that controls it, or None.

    The API server bounds neither name nor uid of a reference; a longer one is none of ours, and
    is not kept in memory.
    """
    for reference in metadata.owner_references or ():
        is_ours = (reference.api_version, reference.kind) == (schedules.API_VERSION, kind)
        is_short = len(reference.uid) <= _UID_LIMIT and len(reference.name) <= _NAME_LIMIT
        if reference.controller and is_ours and is_short:
            return reference
    return None


def slot_us(job: Job) -> int | None:
    """The slot that the Job says it runs for; None where it names none, or one that cannot be."""
    at_us = _instant_us((job.metadata.annotations or {}).get(SCHEDULED_TIME))
    return at_us if at_us is not None and 0 < at_us < points.DUE_LIMIT_US else None


def _instant_us(text: str | None) -> int | None:
    """The instant of a text that a user may have written; None where it names none."""
    try:
        return times.parse_us(text) if text else None
    except ValueError:
        return None


def is_run_of(job: Job, owner: JobOwner) -> bool:
    """Whether the Job runs a slot of this very Schedule."""
    return owner_of(job) == owner and slot_us(job) is not None


def is_released(job: Job) -> bool:
    """Whether nothing controls the Job: its owner reference was removed."""
    return not any(reference.controller for reference in job.metadata.owner_references or ())


async def find(api: port.Api, namespace: str, name: str) -> Job | None:
    """The Job of that name, or None."""
    return await port.find(api, collection(namespace), Job, name)


async def of_schedule(
    api: port.Api, namespace: str, schedule_name: str, schedule_uid: str
) -> tuple[Job, ...]:
    """All Jobs that this Schedule made and that still exist, in no particular order."""
    found = await labelled(api, namespace, schedule_name)
    owner = JobOwner(namespace, schedule_name, schedule_uid)
    return tuple(job for job in found if is_run_of(job, owner))


async def labelled(api: port.Api, namespace: str, schedule_name: str) -> list[Job]:
    """All Jobs with the label of a Schedule of this name, of any controller."""
    query = {"labelSelector": f"{SCHEDULE_LABEL}={schedule_name}"}
    return await port.listed(api, collection(namespace), Job, query)


def finished(job: Job) -> JobResult | None:
    """How the Job ended, or None while it runs."""
    status = job.status or JobStatus()
    for condition in status.conditions or ():
        if condition.status == "True" and condition.type in ("Complete", "Failed"):
            ended = status.completion_time or condition.last_transition_time
            return _result(condition, succeeded=condition.type == "Complete", at=ended)
    return None


def failing(job: Job) -> JobResult | None:
    """Why the Job will have failed once its Pods have ended, or None."""
    for condition in (job.status or JobStatus()).conditions or ():
        if condition.status == "True" and condition.type == "FailureTarget":
            return _result(condition, succeeded=False, at=condition.last_transition_time)
    return None


def _result(condition: JobCondition, *, succeeded: bool, at: str | None) -> JobResult:
    return JobResult(
        succeeded=succeeded,
        reason=run.cut(condition.reason, _REASON_LIMIT),
        message=run.cut(condition.message, run.MESSAGE_LIMIT),
        at_us=_instant_us(at),
    )


def without_pods_since_us(job: Job) -> int | None:
    """Since when a Job that was begun has had no Pod at all and could have one, or None.

    One that has lost Pods already waits between two tries, and says so itself; a suspended one
    wants none.
    """
    status = job.status or JobStatus()
    had_some = status.active or status.terminating or status.succeeded or status.failed
    wants_none = any(
        condition.type in _WITHOUT_PODS and condition.status == "True"
        for condition in status.conditions or ()
    )
    if not status.start_time or had_some or wants_none or job.metadata.deletion_timestamp:
        return None
    return _instant_us(status.start_time)


_WITHOUT_PODS = ("Complete", "Failed", "Suspended", "SuccessCriteriaMet", "FailureTarget")


async def delete(api: port.Api, namespace: str, name: str, uid: str) -> bool:
    """Delete this very Job and, in the background, its Pods. False: it was gone already."""
    return await port.delete(api, path(namespace, name), uid, propagationPolicy="Background")
