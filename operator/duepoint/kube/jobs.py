"""How exactly one Job comes to exist for a slot, and what becomes of it.

``create`` relies on the name that ``jobbuilder`` gives (its names are offered here too): a 409
becomes "it is ours already" only after a look at the owner and the slot, never silently. A Job is a
Schedule's run where its controller is that Schedule, by namespace, name and uid, and where it names
its slot: a uid alone proves nothing, because every receiver is sent it.
``dry_run`` asks the API server whether a template would do. Outages are exceptions
(``errors.Unavailable``); everything that the caller decides upon is a value.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from duepoint.kube import errors, port, schedules, templatewords, times, wire
from duepoint.kube.jobbuilder import (
    CRONJOB_SCHEDULED_TIMESTAMP,
    PAYLOAD,
    PREVIOUS_TIME,
    SCHEDULE_LABEL,
    SCHEDULED_TIME,
    TRIGGER,
    SlotFacts,
    job_for,
    job_name,
    name_of,
)
from duepoint.schedules.conditions import Reason

__all__ = [
    "CRONJOB_SCHEDULED_TIMESTAMP",
    "PAYLOAD",
    "PREVIOUS_TIME",
    "SCHEDULED_TIME",
    "SCHEDULE_LABEL",
    "TRIGGER",
    "SlotFacts",
    "job_for",
    "job_name",
    "name_of",
]

#: A deletion between "exists already" and the look at it is met by asking again, this often.
_CREATE_ROUNDS = 3


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
class Finished:
    """How a Job ended. ``at_us`` is None where the API server does not tell."""

    succeeded: bool
    reason: str
    message: str
    at_us: int | None


# -- creating ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """The Job exists since now."""

    uid: str


@dataclass(frozen=True, slots=True)
class AlreadyOurs:
    """The Job of this very slot existed before, running, finished or being deleted."""

    uid: str


@dataclass(frozen=True, slots=True)
class NameConflict:
    """Another object has the name; it was left alone."""

    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server will not have this Job.

    Attributes:
        reason: InvalidJobTemplate (repeating helps nobody), NamespaceTerminating (nor here),
            QuotaExceeded or Forbidden (both may heal: repeat with backoff until the deadline).
        message: the API server's; of an invalid template with the fields of the Schedule.
    """

    reason: Reason
    message: str

    @property
    def may_heal(self) -> bool:
        return self.reason in (Reason.QUOTA_EXCEEDED, Reason.FORBIDDEN)


CreateResult = Created | AlreadyOurs | NameConflict | Refused


class _Existing(msgspec.Struct, frozen=True):
    metadata: port.Metadata


_existing_decoder = msgspec.json.Decoder(_Existing)


#: Neither warnings of unknown fields, which a dry run reported before, nor the Job in the answer:
#: together they cost the API server a twentieth of a creation.
_LEAN = {"fieldValidation": "Ignore"}


async def create(
    api: port.Api,
    namespace: str,
    job: Mapping[str, Any],
    *,
    body: bytes | None = None,
    timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
) -> CreateResult:
    """Make the Job exist, once.

    Args:
        job: the Job, or of one with a ``body`` its metadata.
        body: the Job as it is sent; of a large one no more than its bytes need be kept.

    Raises:
        errors.Unavailable: no answer. Asking again is always safe: the name decides.
    """
    for _ in range(_CREATE_ROUNDS):
        try:
            answer = await api.request(
                "POST",
                collection(namespace),
                body or job,
                query=_LEAN,
                accept=port.JSON_METADATA,
                timeout_seconds=timeout_seconds,
            )
            return Created(_existing(answer, "POST").uid)
        except errors.Conflict as conflict:
            if not conflict.already_exists:
                continue  # a quota was updated by somebody else meanwhile
            found = await _compare(api, namespace, job, timeout_seconds)
            if found is not None:
                return found
        except errors.Invalid as error:
            message = templatewords.of_invalid(error, str(job["metadata"]["name"]))
            return Refused(_refusal_reason(error), message)
        except (errors.Forbidden, errors.NotFound) as error:
            return Refused(_refusal_reason(error), error.server_message or str(error))
    raise errors.Unavailable(f"POST {collection(namespace)}: kept being in conflict", sent=False)


async def _compare(
    api: port.Api, namespace: str, job: Mapping[str, Any], timeout_seconds: float
) -> AlreadyOurs | NameConflict | Refused | None:
    """Whose Job has the name; None where it has gone meanwhile."""
    wanted = job["metadata"]
    try:
        answer = await api.request(
            "GET", path(namespace, wanted["name"]), timeout_seconds=timeout_seconds
        )
    except errors.NotFound:
        return None
    except errors.Forbidden as error:
        return Refused(_refusal_reason(error), str(error))
    existing = _existing(answer, "GET")
    if _is_same_slot(existing, wanted):
        return AlreadyOurs(existing.uid)
    return NameConflict(_conflict(existing, wanted))


def _existing(answer: bytes, verb: str) -> port.Metadata:
    return wire.decoded(_existing_decoder, answer, f"{verb} Job").metadata


def _is_same_slot(existing: port.Metadata, wanted: Mapping[str, Any]) -> bool:
    slot = wanted["annotations"][SCHEDULED_TIME]
    named = (existing.annotations or {}).get(SCHEDULED_TIME)
    return _is_same_owner(existing, wanted) and named == slot


def _is_same_owner(existing: port.Metadata, wanted: Mapping[str, Any]) -> bool:
    """Of a Job that has the wanted name, and so is in the wanted namespace."""
    owner = wanted["ownerReferences"][0]
    found = _controlling(existing)
    return found is not None and (found.name, found.uid) == (owner["name"], owner["uid"])


def _conflict(existing: port.Metadata, wanted: Mapping[str, Any]) -> str:
    """Why the Job that has the name does not stand for the slot, and what to do."""
    told = f"Job {wanted['namespace']}/{wanted['name']} exists and is not this slot's: "
    if not _is_same_owner(existing, wanted):
        return f"{told}it is controlled by {_controller(existing)}; rename or delete one of them"
    slot = wanted["annotations"][SCHEDULED_TIME]
    named = (existing.annotations or {}).get(SCHEDULED_TIME)
    found = f"is {named}" if named else "is missing"
    return (
        f"{told}its annotation {SCHEDULED_TIME} {found}; write {slot} there if it ran for this "
        "slot, else delete the Job"
    )


def _controller(existing: port.Metadata) -> str:
    for reference in existing.owner_references or ():
        if reference.controller:
            return f"{reference.kind} {reference.name} (uid {reference.uid})"
    return "nobody"


def _refusal_reason(error: errors.Invalid | errors.Forbidden | errors.NotFound) -> Reason:
    if isinstance(error, errors.Invalid):
        return Reason.INVALID_JOB_TEMPLATE
    if isinstance(error, errors.NotFound):
        return Reason.NAMESPACE_TERMINATING  # a POST that finds nothing: the namespace is gone
    match error.cause:
        case errors.ForbiddenCause.QUOTA:
            return Reason.QUOTA_EXCEEDED
        case errors.ForbiddenCause.NAMESPACE_TERMINATING:
            return Reason.NAMESPACE_TERMINATING
        case errors.ForbiddenCause.RIGHTS | errors.ForbiddenCause.ADMISSION:
            return Reason.FORBIDDEN


# -- checking a template ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Valid:
    """The API server would create it."""


@dataclass(frozen=True, slots=True)
class InvalidTemplate:
    """The API server refuses it, and always will; the message names fields of the Schedule."""

    message: str


@dataclass(frozen=True, slots=True)
class NotNow:
    """No verdict; ask again later."""

    reason: Reason
    message: str


async def dry_run(
    api: port.Api,
    namespace: str,
    job: Mapping[str, Any],
    *,
    timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
) -> Valid | InvalidTemplate | NotNow:
    """Ask whether this Job could be created, misspelt fields being errors; never raises ApiError.

    Use the real name of the next slot: an Indexed Job has less room in its name.
    """
    try:
        await api.request(
            "POST",
            collection(namespace),
            job,
            query={"dryRun": "All", "fieldValidation": "Strict"},
            timeout_seconds=timeout_seconds,
        )
    except errors.Conflict:
        return Valid()  # the name is taken, so everything before that check was right
    except errors.Invalid as error:
        return InvalidTemplate(templatewords.of_invalid(error, str(job["metadata"]["name"])))
    except (errors.Forbidden, errors.NotFound) as error:
        reason = _refusal_reason(error)
        return NotNow(reason, templatewords.of_other(error, str(job["metadata"]["name"])))
    except errors.ApiError as error:
        message = str(error).removeprefix(f"POST {collection(namespace)}: ")
        return NotNow(Reason.API_UNAVAILABLE, message)
    return Valid()


# -- reading and deleting ---------------------------------------------------------------------


def collection(namespace: str | None = None) -> str:
    """Path of all Jobs of a namespace, or of the cluster."""
    scope = "" if namespace is None else f"/namespaces/{urllib.parse.quote(namespace, safe='')}"
    return f"/apis/batch/v1{scope}/jobs"


def path(namespace: str, name: str) -> str:
    """Path of one Job."""
    return f"{collection(namespace)}/{urllib.parse.quote(name, safe='')}"


class Owner(NamedTuple):
    """A Schedule as the controller of Jobs: owners are in the namespace of what they own."""

    namespace: str
    name: str
    uid: str


def owner_of(job: Job) -> Owner | None:
    """The Schedule that the Job says it is controlled by, or None."""
    found = _controlling(job.metadata)
    return None if found is None else Owner(job.metadata.namespace, found.name, found.uid)


def _controlling(metadata: port.Metadata) -> port.OwnerReference | None:
    for reference in metadata.owner_references or ():
        is_schedule = (reference.api_version, reference.kind) == (
            schedules.API_VERSION,
            schedules.KIND,
        )
        if reference.controller and is_schedule:
            return reference
    return None


def slot_us(job: Job) -> int | None:
    """The slot that the Job says it runs for; None where it names none."""
    text = (job.metadata.annotations or {}).get(SCHEDULED_TIME)
    try:
        return times.parse_us(text) if text else None
    except ValueError:
        return None


def is_run_of(job: Job, owner: Owner) -> bool:
    """Whether the Job runs a slot of this very Schedule."""
    return owner_of(job) == owner and slot_us(job) is not None


def is_released(job: Job) -> bool:
    """Whether nothing controls the Job: its owner reference was removed."""
    return not any(reference.controller for reference in job.metadata.owner_references or ())


async def find(api: port.Api, namespace: str, name: str) -> Job | None:
    """The Job of that name, or None; found by a list, which needs no further right."""
    query = {"fieldSelector": f"metadata.name={name}"}
    pages = api.list_pages(collection(namespace), Job, query=query)
    found = [job async for page in pages for job in page.items]
    return next((job for job in found if job.metadata.name == name), None)


async def of_schedule(
    api: port.Api, namespace: str, schedule_name: str, schedule_uid: str
) -> tuple[Job, ...]:
    """All Jobs that this Schedule made and that still exist, in no particular order."""
    found = await labelled(api, namespace, schedule_name)
    owner = Owner(namespace, schedule_name, schedule_uid)
    return tuple(job for job in found if is_run_of(job, owner))


async def labelled(api: port.Api, namespace: str, schedule_name: str) -> tuple[Job, ...]:
    """All Jobs with the label of a Schedule of this name, whoever controls them."""
    query = {"labelSelector": f"{SCHEDULE_LABEL}={schedule_name}"}
    pages = api.list_pages(collection(namespace), Job, query=query)
    return tuple([job async for page in pages for job in page.items])


def finished(job: Job) -> Finished | None:
    """How the Job ended, or None while it runs."""
    status = job.status or JobStatus()
    for condition in status.conditions or ():
        if condition.status == "True" and condition.type in ("Complete", "Failed"):
            ended = status.completion_time or condition.last_transition_time
            return Finished(
                succeeded=condition.type == "Complete",
                reason=condition.reason,
                message=condition.message,
                at_us=times.parse_us(ended) if ended else None,
            )
    return None


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
    return times.parse_us(status.start_time)


_WITHOUT_PODS = ("Complete", "Failed", "Suspended", "SuccessCriteriaMet", "FailureTarget")


async def delete(api: port.Api, namespace: str, name: str, uid: str) -> bool:
    """Delete this very Job and, in the background, its Pods. False: it was gone already."""
    options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
    try:
        await api.request("DELETE", path(namespace, name), options)
    except (errors.NotFound, errors.Conflict):  # Conflict: another Job has the name now
        return False
    return True
