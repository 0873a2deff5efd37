"""The Job that a slot creates: what it looks like, and how exactly one comes to exist.

``job_for`` is pure: template and facts in, Job out. Its name is made of the Schedule's name and
the slot, so that the API server itself refuses a second one; ``create`` turns that refusal into
"it is ours already" only after looking at the owner's uid and the slot, never silently.
``dry_run`` asks the API server whether a template would do. Outages are exceptions
(``errors.Unavailable``); everything that the caller decides upon is a value.
"""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors as base
from duepoint.kube import errors, port, schedules, times
from duepoint.schedules.conditions import Reason

SCHEDULE_LABEL = "duepoint.dev/schedule"
SCHEDULED_TIME = "duepoint.dev/scheduled-time"
PREVIOUS_TIME = "duepoint.dev/previous-time"
TRIGGER = "duepoint.dev/trigger"
PAYLOAD = "duepoint.dev/payload"
#: What tools that know CronJob look for (KEP-4026).
CRONJOB_SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"

#: Environment variable -> annotation of the Pod that holds its value.
ENVIRONMENT = {
    "DUEPOINT_SCHEDULED_TIME": SCHEDULED_TIME,
    "DUEPOINT_PREVIOUS_TIME": PREVIOUS_TIME,
    "DUEPOINT_TRIGGER": TRIGGER,
    "DUEPOINT_PAYLOAD": PAYLOAD,
}

#: A finished Job is the proof that its slot ran: it must outlive the longest redelivery.
MINIMUM_TTL_SECONDS = 600
#: Keys and values of all annotations of one object (apimachinery, TotalAnnotationSizeLimitB).
ANNOTATIONS_LIMIT_BYTES = 256 * 1024

#: A deletion between "exists already" and the look at it is met by asking again, this often.
_CREATE_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """What a Job is told about the slot it runs for.

    Attributes:
        slot_us: whole seconds; the name carries them.
        previous_us: the slot before, or None where there is none.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        payload: JSON text, or None.
        time_zone: the Schedule's IANA zone.
        run_uid: uid of the ScheduleRun for manual and backfilled slots, else empty.
    """

    namespace: str
    schedule_name: str
    schedule_uid: str
    slot_us: int
    previous_us: int | None
    trigger: str
    payload: bytes | None
    time_zone: str
    run_uid: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a Job ended. ``at_us`` is None where the API server does not tell."""

    succeeded: bool
    reason: str
    message: str
    at_us: int | None


# -- building ---------------------------------------------------------------------------------


def job_name(facts: SlotFacts) -> str:
    """The one name that this slot's Job can have; at most 63 characters."""
    seconds = facts.slot_us // 1_000_000
    if not facts.run_uid:
        return f"{facts.schedule_name}-{seconds}"
    digest = hashlib.sha256(facts.run_uid.encode()).hexdigest()[:10]
    # A cut may leave a dot at the end, and a name whose part begins with "-" is none.
    return f"{facts.schedule_name[:41].rstrip('.')}-{seconds}-{digest}"


def job_for(template: Mapping[str, Any], facts: SlotFacts) -> dict[str, Any]:
    """The Job to create for a slot.

    Args:
        template: ``spec.jobTemplate`` of the Schedule; it is not changed, and parts of it are
            shared with the result.
        facts: about the slot.

    Raises:
        errors.InvalidSpec: the annotations together exceed 256 KiB, so no Job can carry them.
    """
    metadata = _mapping(template.get("metadata"))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(facts),
            "namespace": facts.namespace,
            "labels": _mapping(metadata.get("labels")) | {SCHEDULE_LABEL: facts.schedule_name},
            "annotations": _job_annotations(_mapping(metadata.get("annotations")), facts),
            "ownerReferences": [_owner(facts)],
        },
        "spec": _job_spec(_mapping(template.get("spec")), facts),
    }


def _owner(facts: SlotFacts) -> dict[str, Any]:
    return {
        "apiVersion": schedules.API_VERSION,
        "kind": schedules.KIND,
        "name": facts.schedule_name,
        "uid": facts.schedule_uid,
        "controller": True,
        "blockOwnerDeletion": False,  # True would need rights on the Schedule's finalizers
    }


def _job_annotations(own: dict[str, Any], facts: SlotFacts) -> dict[str, Any]:
    annotations = own | {
        SCHEDULED_TIME: times.time_text(facts.slot_us),
        TRIGGER: facts.trigger,
        CRONJOB_SCHEDULED_TIMESTAMP: times.time_text_in(facts.slot_us, facts.time_zone),
    }
    return _within_limit(annotations, "spec.jobTemplate.metadata.annotations")


def _pod_annotations(own: dict[str, Any], facts: SlotFacts) -> dict[str, Any]:
    annotations = own | {
        SCHEDULED_TIME: times.time_text(facts.slot_us),
        TRIGGER: facts.trigger,
    }
    if facts.previous_us is not None:
        annotations[PREVIOUS_TIME] = times.time_text(facts.previous_us)
    if facts.payload is not None:
        annotations[PAYLOAD] = facts.payload.decode(errors="replace")
    return _within_limit(annotations, "spec.jobTemplate.spec.template.metadata.annotations")


def _within_limit(annotations: dict[str, Any], path: str) -> dict[str, Any]:
    size = sum(len(key.encode()) + len(str(text).encode()) for key, text in annotations.items())
    if size <= ANNOTATIONS_LIMIT_BYTES:
        return annotations
    told = f"annotations, payload included, are {size} bytes; they must stay under 256 KiB"
    field = base.FieldError(reason=Reason.INVALID_JOB_TEMPLATE, path=path, message=told)
    raise base.InvalidSpec((field,))


def _job_spec(spec: dict[str, Any], facts: SlotFacts) -> dict[str, Any]:
    ttl = spec.get("ttlSecondsAfterFinished")
    if isinstance(ttl, int) and 0 <= ttl < MINIMUM_TTL_SECONDS:
        spec["ttlSecondsAfterFinished"] = MINIMUM_TTL_SECONDS
    pod = _mapping(spec.get("template"))
    metadata = _mapping(pod.get("metadata"))
    own = _mapping(metadata.get("annotations"))
    pod["metadata"] = metadata | {"annotations": _pod_annotations(own, facts)}
    pod["spec"] = _pod_spec(_mapping(pod.get("spec")))
    spec["template"] = pod
    return spec


def _pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        if isinstance(containers, list):
            spec[field] = [_with_environment(container) for container in containers]
    return spec


def _with_environment(container: object) -> object:
    """Ours come first, so that the container's own variables may refer to them."""
    if not isinstance(container, Mapping):
        return container  # the API server says what is wrong with it
    own = container.get("env") or []
    if not isinstance(own, list):
        return container
    defined = {entry.get("name") for entry in own if isinstance(entry, Mapping)}
    ours = [_variable(name) for name in ENVIRONMENT if name not in defined]
    return {**container, "env": [*ours, *own]}


def _variable(name: str) -> dict[str, Any]:
    field = f"metadata.annotations['{ENVIRONMENT[name]}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}


def _mapping(value: object) -> dict[str, Any]:
    """A shallow copy to change; {} for null, absent and what is no object."""
    return dict(value) if isinstance(value, Mapping) else {}


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
        message: the API server's.
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


async def create(
    api: port.Api,
    namespace: str,
    job: Mapping[str, Any],
    *,
    timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
) -> CreateResult:
    """Make the Job exist, once.

    Raises:
        errors.Unavailable: no answer. Asking again is always safe: the name decides.
    """
    for _ in range(_CREATE_ROUNDS):
        try:
            answer = await api.request(
                "POST", collection(namespace), job, timeout_seconds=timeout_seconds
            )
            return Created(_existing_decoder.decode(answer).metadata.uid)
        except errors.Conflict as conflict:
            if not conflict.already_exists:
                continue  # a quota was updated by somebody else meanwhile
            found = await _compare(api, namespace, job, timeout_seconds)
            if found is not None:
                return found
        except (errors.Invalid, errors.Forbidden, errors.NotFound) as error:
            return Refused(_refusal_reason(error), str(error))
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
    existing = _existing_decoder.decode(answer).metadata
    if _is_same_slot(existing, wanted):
        return AlreadyOurs(existing.uid)
    return NameConflict(
        f"Job {namespace}/{wanted['name']} exists and is not this slot's: it is controlled by "
        f"{_controller(existing)}; rename or delete one of them"
    )


def _is_same_slot(existing: port.Metadata, wanted: Mapping[str, Any]) -> bool:
    owner_uid = wanted["ownerReferences"][0]["uid"]
    slot = wanted["annotations"][SCHEDULED_TIME]
    return (
        any(ref.controller and ref.uid == owner_uid for ref in existing.owner_references or ())
        and (existing.annotations or {}).get(SCHEDULED_TIME) == slot
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
    """The API server refuses it, and always will."""

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
        return InvalidTemplate(str(error))
    except (errors.Forbidden, errors.NotFound) as error:
        return NotNow(_refusal_reason(error), str(error))
    except errors.ApiError as error:
        return NotNow(Reason.API_UNAVAILABLE, str(error))
    return Valid()


# -- reading and deleting ---------------------------------------------------------------------


def collection(namespace: str | None = None) -> str:
    """Path of all Jobs of a namespace, or of the cluster."""
    scope = "" if namespace is None else f"/namespaces/{urllib.parse.quote(namespace, safe='')}"
    return f"/apis/batch/v1{scope}/jobs"


def path(namespace: str, name: str) -> str:
    """Path of one Job."""
    return f"{collection(namespace)}/{urllib.parse.quote(name, safe='')}"


def is_controlled_by(job: Job, schedule_uid: str) -> bool:
    """Whether this very Schedule made the Job."""
    references = job.metadata.owner_references or ()
    return any(ref.controller and ref.uid == schedule_uid for ref in references)


async def of_schedule(
    api: port.Api, namespace: str, schedule_name: str, schedule_uid: str
) -> tuple[Job, ...]:
    """All Jobs that this Schedule made and that still exist, in no particular order."""
    query = {"labelSelector": f"{SCHEDULE_LABEL}={schedule_name}"}
    pages = api.list_pages(collection(namespace), Job, query=query)
    found = [job async for page in pages for job in page.items]
    return tuple(job for job in found if is_controlled_by(job, schedule_uid))


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


async def delete(api: port.Api, namespace: str, name: str, uid: str) -> bool:
    """Delete this very Job and, in the background, its Pods. False: it was gone already."""
    options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
    try:
        await api.request("DELETE", path(namespace, name), options)
    except (errors.NotFound, errors.Conflict):  # Conflict: another Job has the name now
        return False
    return True
