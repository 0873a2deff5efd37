"""How exactly one Job comes to exist for a slot, and whether a template would do.

``create`` relies on the name that ``jobbuilder`` gives: a 409 becomes "it is ours already" only
after a look at the owner and the slot, never silently. ``dry_run`` asks the API server about a
template. Outages are exceptions (``errors.Unavailable``); everything that the caller decides upon
is a value.

The API server's answer to a dry run names a Job that does not exist, and the Job's own fields. The
author of a Schedule wrote ``spec.jobTemplate``, so messages give paths from there and leave the
Job's name out: the answer is the same for all Schedules that were made from one template. The texts
are those of Kubernetes v1.36; of others only what is recognized is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from duepoint import faults
from duepoint.faults import FaultPoint
from duepoint.kube import errors, jobbuilder, jobs, port, wire
from duepoint.kube.jobbuilder import SCHEDULED_TIME
from duepoint.runs import run
from duepoint.schedules.conditions import Reason

#: A deletion between "exists already" and the look at it is met by asking again, this often.
_CREATE_ROUNDS = 3


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
class JobRefused:
    """The API server will not have this Job.

    Attributes:
        reason: InvalidJobTemplate or NamespaceTerminating (repeating does not help),
            QuotaExceeded or Forbidden (both may heal: repeat with backoff until the deadline).
        message: the API server's; of an invalid template with the fields of the Schedule.
    """

    reason: Reason
    message: str

    @property
    def may_heal(self) -> bool:
        return self.reason in (Reason.QUOTA_EXCEEDED, Reason.FORBIDDEN)


CreateResult = Created | AlreadyOurs | NameConflict | JobRefused


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
                jobs.collection(namespace),
                body or job,
                query=_LEAN,
                accept=port.JSON_METADATA,
                timeout_seconds=timeout_seconds,
            )
            return Created(wire.metadata(answer, "POST Job").uid)
        except errors.Conflict as conflict:
            if not conflict.already_exists:
                continue  # another client updated a quota meanwhile
            await faults.reach(FaultPoint.BEFORE_JOB_COMPARED)
            found = await _compare(api, namespace, job, timeout_seconds)
            if found is not None:
                return found
        except errors.Invalid as error:
            message = invalid_text(error, str(job["metadata"]["name"]))
            return JobRefused(_refusal_reason(error), message)
        except (errors.Forbidden, errors.NotFound) as error:
            return JobRefused(_refusal_reason(error), error.server_message or str(error))
    raise errors.Unavailable(
        f"POST {jobs.collection(namespace)}: kept being in conflict", sent=False
    )


async def _compare(
    api: port.Api, namespace: str, job: Mapping[str, Any], timeout_seconds: float
) -> AlreadyOurs | NameConflict | JobRefused | None:
    """Whose Job has the name; None where it has gone meanwhile."""
    wanted = job["metadata"]
    try:
        answer = await api.request(
            "GET", jobs.path(namespace, wanted["name"]), timeout_seconds=timeout_seconds
        )
    except errors.NotFound:
        return None
    except errors.Forbidden as error:
        return JobRefused(_refusal_reason(error), str(error))
    existing = wire.metadata(answer, "GET Job")
    trouble = _conflict(existing, wanted)
    return NameConflict(trouble) if trouble else AlreadyOurs(existing.uid)


def _conflict(existing: port.Metadata, wanted: Mapping[str, Any]) -> str:
    """Why the Job that has the name does not stand for the slot, and what to do; "" if it does."""
    begin = f"Job {wanted['namespace']}/{wanted['name']} exists and is not this slot's: "
    owner = wanted["ownerReferences"][0]
    found = jobs.controlling(existing, owner["kind"])
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
    """A text of another writer, which may be long."""
    return run.cut(text, run.CAUSE_LIMIT)


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
    api: port.Api, namespace: str, job: Mapping[str, Any]
) -> Valid | InvalidTemplate | NotNow:
    """Ask whether this Job could be created, misspelt fields being errors; never raises ApiError.

    Use the real name of the next slot: an Indexed Job has less room in its name.
    """
    try:
        await api.request(
            "POST",
            jobs.collection(namespace),
            jobbuilder.with_own_variables_first(job),
            query={"dryRun": "All", "fieldValidation": "Strict"},
        )
    except errors.Conflict:
        return Valid()  # the name is taken, so everything before that check was right
    except errors.Invalid as error:
        return InvalidTemplate(invalid_text(error, str(job["metadata"]["name"])))
    except (errors.Forbidden, errors.NotFound) as error:
        reason = _refusal_reason(error)
        return NotNow(reason, refusal_text(error, str(job["metadata"]["name"])))
    except errors.ApiError as error:
        message = str(error).removeprefix(f"POST {jobs.collection(namespace)}: ")
        return NotNow(Reason.API_UNAVAILABLE, message)
    return Valid()


# -- the API server's words about a Job as words about the jobTemplate ------------------------

#: A field of the Job, as the API server writes it; not a part of a longer word.
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
#: Types of Go, or what they begin with, as one would say them of YAML.
_WORDS = {"string": "a text", "bool": "true or false", "[": "a list", "m": "a mapping"}
#: What stands for a Job's name: its Schedule's, and its slot's.
_ANY_NAME = "<name>-<slot>"


def invalid_text(error: errors.Invalid, job_name: str) -> str:
    """What is wrong with which field of the Schedule; several are separated by semicolons."""
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
    """Why there is no verdict: the server's words without the Job that does not exist."""
    return _HEAD.sub("", error.server_message or str(error)).replace(job_name, _ANY_NAME)


def _of_text(text: str) -> Iterator[str]:
    """The sentences of the decoder, which names fields inside them."""
    if text.startswith("strict decoding error: "):
        for found in _STRICT.finditer(text):
            says = "is no field of a Job" if found["what"] == "unknown" else "is there twice"
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
