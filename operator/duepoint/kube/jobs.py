"""Jobs at the API server: their owner and their result; creation exactly once, and deletion.

A Job is a Schedule's run if its controller is that Schedule, by namespace, name and uid, and if it
names its slot. A uid alone proves nothing, because every receiver gets it.

``create`` relies on the name from ``jobbuilder``: after a 409 it checks the owner and the slot
before it counts the Job as ours. ``dry_run`` asks the API server about a template. Outages are
exceptions (``errors.Unavailable``); all results that a caller must handle are values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from duepoint import faults
from duepoint.faults import FaultPoint
from duepoint.kube import errors, port, schedules, times
from duepoint.kube.jobbuilder import SCHEDULED_TIME
from duepoint.runs import run
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

#: The longest name of an object, and more than the length of a uid (36), in characters.
_NAME_LIMIT = 253
_UID_LIMIT = 64
#: The longest reason of a condition that is kept, in characters.
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
    """``status`` of a Job: only the fields that show its outcome."""

    conditions: tuple[JobCondition, ...] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a Job ended. ``at_us`` is None if the API server names no time."""

    succeeded: bool
    reason: str
    message: str
    at_us: int | None


def collection(namespace: str | None = None) -> str:
    """Return the path of all Jobs of a namespace, or of the cluster."""
    return port.path("/apis/batch/v1", namespace, "jobs")


def path(namespace: str, name: str) -> str:
    """Return the path of one Job."""
    return port.path("/apis/batch/v1", namespace, "jobs", name)


class JobOwner(NamedTuple):
    """A Schedule as the controller of Jobs: owners are in the namespace of what they own."""

    namespace: str
    name: str
    uid: str


def owner_of(job: Job) -> JobOwner | None:
    """Return the Schedule that the Job names as its controller, or None."""
    found = controlling(job.metadata)
    return None if found is None else JobOwner(job.metadata.namespace, found.name, found.uid)


def controlling(metadata: port.Metadata, kind: str = schedules.KIND) -> port.OwnerReference | None:
    """Return the controlling Schedule, or object of another kind of ours, or None.

    The API server limits neither name nor uid of a reference; one that is too long is not ours,
    and is not kept in memory.
    """
    for reference in metadata.owner_references or ():
        is_ours = (reference.api_version, reference.kind) == (schedules.API_VERSION, kind)
        is_short = len(reference.uid) <= _UID_LIMIT and len(reference.name) <= _NAME_LIMIT
        if reference.controller and is_ours and is_short:
            return reference
    return None


def slot_us(job: Job) -> int | None:
    """Return the slot that the Job names; None = it names none, or an impossible one."""
    at_us = _instant_us((job.metadata.annotations or {}).get(SCHEDULED_TIME))
    return at_us if at_us is not None and 0 < at_us < points.DUE_LIMIT_US else None


def _instant_us(text: str | None) -> int | None:
    """Return the instant of a text that a user may have written; None = it is not valid."""
    try:
        return times.parse_us(text) if text else None
    except ValueError:
        return None


def is_run_of(job: Job, owner: JobOwner) -> bool:
    """Whether the Job runs a slot of this very Schedule."""
    return owner_of(job) == owner and slot_us(job) is not None


async def find(api: port.Api, namespace: str, name: str) -> Job | None:
    """Return the Job of that name, or None."""
    return await port.find(api, collection(namespace), Job, name)


def finished(job: Job) -> JobResult | None:
    """Return how the Job ended; None = it is active."""
    status = job.status or JobStatus()
    for condition in status.conditions or ():
        if condition.status == "True" and condition.type in ("Complete", "Failed"):
            ended = status.completion_time or condition.last_transition_time
            return _result(condition, succeeded=condition.type == "Complete", at=ended)
    return None


def failing(job: Job) -> JobResult | None:
    """Return why the Job will fail once its Pods have ended, or None."""
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
    """Return since when a started Job has had no Pod at all although it could have one, or None.

    A Job that has lost Pods waits between two attempts, and its status says so; a suspended one
    gets no Pods.
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
    """Delete this very Job and, in the background, its Pods; False = it was already gone."""
    return await port.delete(api, path(namespace, name), uid, propagationPolicy="Background")


# -- creation --------------------------------------------------------------------------------------

#: How often to try if the existing Job is deleted between the conflict and our read.
_CREATE_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Created:
    """The Job of this very slot exists; ``is_new``: this call has created it."""

    uid: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class JobRefused:
    """There is no Job of this slot.

    Attributes:
        reason: InvalidJobTemplate, Deleted or NameConflict (a retry does not help), Forbidden or
            ApiUnavailable (it may heal: retry with backoff until the deadline).
        message: the API server's message; for an invalid template with the Schedule's fields.
    """

    reason: Reason
    message: str

    @property
    def may_heal(self) -> bool:
        return self.reason in (Reason.FORBIDDEN, Reason.API_UNAVAILABLE)


#: We need no warnings of unknown fields, which the dry run has reported, and no Job in the answer:
#: together they cost the API server a twentieth of a creation.
_LEAN = {"fieldValidation": "Ignore"}


async def create(
    api: port.Api,
    namespace: str,
    job: Mapping[str, Any],
    *,
    timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
) -> Created | JobRefused:
    """Create the Job once.

    Raises:
        errors.Unavailable: no answer. A retry is always safe, because the name is unique.
    """
    wanted, body = job["metadata"], msgspec.json.encode(job)
    del job  # it may be large, and is not needed any more
    for _ in range(_CREATE_ROUNDS):
        try:
            answer = await api.request(
                "POST",
                collection(namespace),
                body,
                query=_LEAN,
                accept=port.JSON_METADATA,
                timeout_seconds=timeout_seconds,
            )
            return Created(port.metadata(answer, "POST Job").uid, is_new=True)
        except errors.Conflict as conflict:
            if not conflict.already_exists:
                continue  # another client updated a quota meanwhile
            await faults.reach(FaultPoint.BEFORE_JOB_COMPARED)
            found = await _compare(api, namespace, wanted, timeout_seconds)
            if found is not None:
                return found
        except errors.Invalid as error:
            message = invalid_text(error, str(wanted["name"]))
            return JobRefused(_refusal_reason(error), message)
        except (errors.Forbidden, errors.NotFound) as error:
            return JobRefused(_refusal_reason(error), error.server_message or str(error))
    raise errors.Unavailable(f"POST {collection(namespace)}: kept being in conflict", sent=False)


async def _compare(
    api: port.Api, namespace: str, wanted: Mapping[str, Any], timeout_seconds: float
) -> Created | JobRefused | None:
    """Read whose Job has the name; None = it is gone meanwhile."""
    try:
        answer = await api.request(
            "GET", path(namespace, wanted["name"]), timeout_seconds=timeout_seconds
        )
    except errors.NotFound:
        return None
    except errors.Forbidden as error:
        return JobRefused(_refusal_reason(error), str(error))
    existing = port.metadata(answer, "GET Job")
    trouble = _conflict(existing, wanted)
    if trouble:
        return JobRefused(Reason.NAME_CONFLICT, trouble)
    return Created(existing.uid, is_new=False)


def _conflict(existing: port.Metadata, wanted: Mapping[str, Any]) -> str:
    """Return why the Job of that name is not the slot's, and what to do; "" = it is."""
    begin = f"Job {wanted['namespace']}/{wanted['name']} exists and is not this slot's: "
    owner = wanted["ownerReferences"][0]
    found = controlling(existing, owner["kind"])
    if found is None or (found.name, found.uid) != (owner["name"], owner["uid"]):
        controllers = (each for each in existing.owner_references or () if each.controller)
        other = next(
            (_cut(f"{each.kind} {each.name} (uid {each.uid})") for each in controllers), "nothing"
        )
        return f"{begin}it is controlled by {other}; rename or delete one of them"
    slot = wanted["annotations"][SCHEDULED_TIME]
    named = (existing.annotations or {}).get(SCHEDULED_TIME)
    if named == slot:
        return ""
    return (
        f"{begin}its annotation {SCHEDULED_TIME} {f'is {_cut(named)}' if named else 'is missing'}; "
        f"write {slot} there if it ran for this slot, else delete the Job"
    )


def _cut(text: str) -> str:
    """Cut a text of another writer, which may be long."""
    return run.cut(text, run.CAUSE_LIMIT)


def _refusal_reason(error: errors.Invalid | errors.Forbidden | errors.NotFound) -> Reason:
    if isinstance(error, errors.Invalid):
        return Reason.INVALID_JOB_TEMPLATE
    if isinstance(error, errors.NotFound):
        return Reason.DELETED  # a POST that finds nothing: the namespace is gone
    return Reason.DELETED if error.is_terminating else Reason.FORBIDDEN


# -- checking a template ----------------------------------------------------------------------


async def dry_run(api: port.Api, namespace: str, job: Mapping[str, Any]) -> JobRefused | None:
    """Return why this Job could not be created, or None; unknown fields are errors.

    Never raises ApiError. Any reason but InvalidJobTemplate means that there is no verdict now.
    Build the Job without variables of ours, and with the real name of the next slot: an Indexed Job
    has less room in its name.
    """
    try:
        await api.request(
            "POST",
            collection(namespace),
            job,
            query={"dryRun": "All", "fieldValidation": "Strict"},
        )
    except errors.Conflict:
        return None  # the name is taken, so all earlier checks have passed
    except errors.Invalid as error:
        message = invalid_text(error, str(job["metadata"]["name"]))
        return JobRefused(_refusal_reason(error), message)
    except (errors.Forbidden, errors.NotFound) as error:
        message = refusal_text(error, str(job["metadata"]["name"]))
        return JobRefused(_refusal_reason(error), message)
    except errors.ApiError as error:
        message = str(error).removeprefix(f"POST {collection(namespace)}: ")
        return JobRefused(Reason.API_UNAVAILABLE, message)
    return None


# -- the API server's messages about a Job, as messages about the jobTemplate -----------------

#: A field of the Job in the API server's messages; not a part of a longer word.
_FIELD = re.compile(r"(?<![\w.])(?P<part>spec|metadata)(?=[.:])")
_HEAD = re.compile(
    r'^(?:(?:Job\.batch|jobs\.batch) "[^"]*" is (?:invalid|forbidden)'
    r'|Job in version "[^"]*" cannot be handled as a Job): '
)
_STRICT = re.compile(r'(?P<what>unknown|duplicate) field "(?P<path>[^"]*)"')
_GO_TYPE = re.compile(
    r"json: cannot unmarshal (?P<written>\S+) into Go struct field \w+\.(?P<path>\S+)"
    r" of type (?P<wanted>\S+)"
)
#: Types of Go, or their first characters, in words for YAML.
_WORDS = {"string": "a text", "bool": "true or false", "[": "a list", "m": "a mapping"}
#: Replaces the name of a Job, which differs from slot to slot.
_ANY_NAME = "<name>-<slot>"


def invalid_text(error: errors.Invalid, job_name: str) -> str:
    """Return the Schedule's invalid fields and what is wrong with them, joined by semicolons."""
    causes = [
        f"{field}: {message}; write a shorter name"
        if field == "metadata.name"
        else f"{_below(field)}: {message}"
        for field, message in error.causes
        if field and message
    ]
    sentences = causes or list(_of_text(_HEAD.sub("", error.server_message or str(error))))
    text = "; ".join(dict.fromkeys(sentences)).replace(job_name, _ANY_NAME)
    return text[: errors.MESSAGE_LIMIT]


def refusal_text(error: errors.ApiError, job_name: str) -> str:
    """Return why there is no verdict: the server's message without the name of the Job."""
    return _HEAD.sub("", error.server_message or str(error)).replace(job_name, _ANY_NAME)


def _of_text(text: str) -> Iterator[str]:
    """Yield the sentences of the API server's decoder, with fields of the Schedule."""
    if text.startswith("strict decoding error: "):
        for found in _STRICT.finditer(text):
            says = "is not a field of a Job" if found["what"] == "unknown" else "is there twice"
            yield f"{_below(found['path'])}: {says}"
    elif wrong := _GO_TYPE.search(text):
        wanted = wrong["wanted"]  # a type of Go
        if wanted.startswith(("int", "uint")):
            write = "a whole number"
        else:
            write = _WORDS.get(wanted) or _WORDS.get(wanted[0]) or "a mapping"
        yield f"{_below(wrong['path'])}: is a {wrong['written']}; write {write}"
    else:
        yield f"spec.jobTemplate: {_FIELD.sub(lambda found: _below(found['part']), text)}"


def _below(field: str) -> str:
    return f"spec.jobTemplate.{field}"
