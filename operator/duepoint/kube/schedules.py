"""Schedules, ScheduleRuns and ScheduleSets at the API server: paths, typed structs, reads, writes.

Only metadata is decoded at once; spec and status stay raw bytes until they are needed. So a list of
100,000 is cheap (14 ms per 5,000, a tenth of untyped decoding), and one object that does not fit
our types does not spoil its whole page. A ``msgspec.Raw`` of a list refers to the bytes of its
whole page: ``copy()`` it before keeping it.

A status is written without reading the object first: a JSON Patch tests ``/metadata/uid`` and then
replaces the whole ``/status``. There is no read and no conflict, and a new object with the name of
a deleted one is never written to. (The API server silently ignores a uid in a merge patch or an
apply body, so only this form is safe.) The CRD refuses a status that goes back, so that a paused
former leader cannot overwrite a newer one's.

A ScheduleSet has a finalizer, which keeps the object until its members are gone from Redis. We
write it with a JSON Patch that tests uid and version, so that no other finalizer is lost.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors as base
from duepoint.kube import errors, port, times
from duepoint.model import schedulerun as model
from duepoint.model.vocabulary import is_given
from duepoint.schedules import manualruns, specfields
from duepoint.schedules import spec as specs
from duepoint.schedules.conditions import Reason
from duepoint.schedules.spec import ScheduleSpec

GROUP = "duepoint.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Schedule"
PLURAL = "schedules"
RUN_KIND = "ScheduleRun"
RUN_PLURAL = "scheduleruns"
SET_KIND = "ScheduleSet"
SET_PLURAL = "schedulesets"

_EMPTY = msgspec.Raw(b"{}")


class Schedule(msgspec.Struct, frozen=True):
    """A Schedule; its spec and status are still raw."""

    metadata: port.Metadata
    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY


class ScheduleRun(Schedule, frozen=True):
    """A ScheduleRun; its spec and status are still raw."""


def collection(namespace: str | None = None, *, plural: str = PLURAL) -> str:
    """Return the path of all Schedules (or ScheduleRuns) of a namespace, or of the cluster."""
    return port.path(f"/apis/{API_VERSION}", namespace, plural)


def path(namespace: str, name: str, *, plural: str = PLURAL) -> str:
    """Return the path of one Schedule (or ScheduleRun)."""
    return port.path(f"/apis/{API_VERSION}", namespace, plural, name)


async def read(api: port.Api, namespace: str, name: str, *, not_before: int = 0) -> Schedule | None:
    """Read the Schedule of that name; see ``port.find``."""
    return await port.find(api, collection(namespace), Schedule, name, not_before=not_before)


async def read_run(
    api: port.Api, namespace: str, name: str, *, not_before: int = 0
) -> ScheduleRun | None:
    """Read the ScheduleRun of that name; see ``port.find``."""
    runs = collection(namespace, plural=RUN_PLURAL)
    return await port.find(api, runs, ScheduleRun, name, not_before=not_before)


async def delete_run(api: port.Api, namespace: str, name: str, uid: str) -> bool:
    """Delete this very ScheduleRun; False = it was already gone."""
    return await port.delete(api, path(namespace, name, plural=RUN_PLURAL), uid)


# -- a new ScheduleRun ---------------------------------------------------------------------------

#: Label of a ScheduleRun: the name of its Schedule, as far as it fits.
SCHEDULE_LABEL = f"{GROUP}/schedule"
_RUN_ATTEMPTS = 4


def new_run(namespace: str, schedule_name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ScheduleRun to create, with a new name; ``spec`` is without the Schedule's name."""
    name = f"{schedule_name[:52].rstrip('.-')}-{secrets.token_hex(4)}"
    return {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {SCHEDULE_LABEL: schedule_name[:63].rstrip(".-")},
        },
        "spec": {"scheduleName": schedule_name, **spec},
    }


async def create_run(
    api: port.Api, run: Mapping[str, Any], *, manager: str | None = None
) -> ScheduleRun:
    """Create this ScheduleRun once, even if an answer is lost; raises errors.ApiError."""
    metadata = run["metadata"]
    runs = collection(metadata["namespace"], plural=RUN_PLURAL)
    query = None if manager is None else {"fieldManager": manager}
    for left in range(_RUN_ATTEMPTS, 0, -1):
        try:
            body = await api.request("POST", runs, run, query=query)
            break
        except errors.Unauthorized:
            raise
        except errors.Unavailable:
            if left == 1:
                raise
        except errors.Conflict:  # an earlier attempt created it, and its answer was lost
            body = await api.request("GET", f"{runs}/{metadata['name']}")
            break
    return msgspec.json.decode(body, type=ScheduleRun)


# -- the spec of a ScheduleRun -------------------------------------------------------------------

# The CRD has checked the spec already, but an operator may be older or newer than the installed
# CRD, and a CRD cannot express some rules.

_decoder = msgspec.json.Decoder(model.RunFields)


def wanted(spec: bytes, *, created_us: int) -> manualruns.Wanted:
    """Parse a spec, given as JSON text; raises errors.InvalidSpec.

    ``created_us`` is metadata.creationTimestamp, the slot of a trigger that names none.
    """
    read = specfields.decode(_decoder, spec)
    findings = specfields.SpecFindings()
    findings.check(read)
    if findings.errors:
        raise base.InvalidSpec(tuple(findings.errors))
    slots = _trigger(read.trigger, created_us) if read.trigger else _backfill(read, created_us)
    return manualruns.Wanted(
        schedule=read.schedule_name, slots=slots, ttl_seconds=read.ttl_seconds_after_finished
    )


def _trigger(read: model.TriggerFields, created_us: int) -> manualruns.Trigger:
    slot_us = created_us
    if read.scheduled_time is not None:
        slot_us = _instant_us(read.scheduled_time, "spec.trigger.scheduledTime")
    payload = bytes(read.payload) if is_given(read.payload) else b""
    if len(payload) > manualruns.PAYLOAD_LIMIT_BYTES:
        message = (
            f"has {len(payload)} bytes of JSON; at most {manualruns.PAYLOAD_LIMIT_BYTES} are "
            "handed on, so put a reference to larger data in it"
        )
        raise _invalid("spec.trigger.payload", message)
    return manualruns.Trigger(
        slot_us=slot_us, payload=payload, concurrency=read.concurrency_policy or ""
    )


def _backfill(read: model.RunFields, created_us: int) -> manualruns.Backfill:
    fields = read.backfill
    assert fields is not None  # noqa: S101 - exactly one of the two is set
    from_us = _instant_us(fields.from_, "spec.backfill.from")
    to_us = _instant_us(fields.to, "spec.backfill.to")
    return manualruns.Backfill(
        from_us=from_us,
        to_us=to_us,
        asked_us=created_us,
        max_parallel=fields.max_parallel or manualruns.MAX_PARALLEL,
        limit=fields.limit or manualruns.LIMIT,
        newest_first=fields.order == "NewestFirst",
    )


def _instant_us(text: str, path: str) -> int:
    try:
        instant_us = times.parse_us(text)
    except ValueError as error:
        raise _invalid(path, f"{base.quoted(text)} is not an RFC 3339 time") from error
    if not manualruns.is_storable(instant_us):
        message = f"{text} is not between 1970 and 2112; write a time in between"
        raise _invalid(path, message)
    return instant_us


def _invalid(path: str, message: str) -> base.InvalidSpec:
    field = base.FieldError(reason=Reason.INVALID_SPEC, path=path, message=message)
    return base.InvalidSpec((field,))


# -- status ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusTarget:
    """The object that a status belongs to."""

    namespace: str
    name: str
    uid: str
    plural: str = PLURAL


async def write_status(
    api: port.Api, object_: StatusTarget, status: Mapping[str, Any]
) -> int | None:
    """Replace the whole status; return the object's new resourceVersion as a number, 0 = unknown.

    None: the object is gone, or another one has its name now. A retry after a lost answer is
    harmless: the newest state wins.

    Raises:
        errors.Invalid: the schema refuses it, or there is a newer status.
        errors.Unavailable, errors.Forbidden: as the API server says.
    """
    url = f"{path(object_.namespace, object_.name, plural=object_.plural)}/status"
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": object_.uid},
        {"op": "add", "path": "/status", "value": dict(status)},
    ]
    try:
        answer = await api.request(
            "PATCH", url, patch, content_type=port.JSON_PATCH, accept=port.JSON_METADATA
        )
    except errors.NotFound:
        return None
    except errors.Invalid as error:
        if error.fields:
            raise
        return None  # the test of the uid failed, which names no field
    try:
        return port.version_of(port.metadata(answer, url))
    except errors.Unavailable:
        return 0


# -- ScheduleSets and their finalizer --------------------------------------------------------------

#: An object with this finalizer stays until its members are removed.
FINALIZER = f"{GROUP}/members"


class ScheduleSet(Schedule, frozen=True):
    """A ScheduleSet; its spec and status are still raw."""

    @property
    def has_finalizer(self) -> bool:
        """Whether it has our finalizer."""
        return FINALIZER in (self.metadata.finalizers or ())


def set_collection(namespace: str | None = None) -> str:
    """Return the path of all ScheduleSets of a namespace, or of the cluster."""
    return collection(namespace, plural=SET_PLURAL)


async def read_set(api: port.Api, namespace: str, name: str) -> ScheduleSet | None:
    """Read the newest version of the ScheduleSet of that name; see ``port.find``."""
    return await port.find(api, set_collection(namespace), ScheduleSet, name)


async def set_finalizer(api: port.Api, item: ScheduleSet, *, is_present: bool = True) -> bool:
    """Add our finalizer to the object, or remove it with ``is_present`` False.

    Return whether that is done; False: the object has changed meanwhile, so read it again. One that
    is gone has no finalizer. Raises errors.Unavailable and errors.Forbidden.
    """
    if item.has_finalizer is is_present:
        return True
    metadata = item.metadata
    url = path(metadata.namespace, metadata.name, plural=SET_PLURAL)
    others = [each for each in metadata.finalizers or () if each != FINALIZER]
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        {"op": "add", "path": "/metadata/finalizers", "value": others + [FINALIZER] * is_present},
    ]
    try:
        await api.request(
            "PATCH", url, patch, content_type=port.JSON_PATCH, accept=port.JSON_METADATA
        )
    except errors.NotFound:
        return not is_present
    except (errors.Conflict, errors.Invalid):  # a failed test of a patch is a 422
        return False
    return True


# -- the spec of a Schedule ------------------------------------------------------------------------


def spec_of(item: Schedule, *, absent_us: int = 0) -> ScheduleSpec:
    """Parse the spec of a Schedule.

    Args:
        absent_us: the time of creation to use if the object has none.

    Raises:
        errors.InvalidSpec: with every error found, in field order.
    """
    metadata = item.metadata
    created = metadata.creation_timestamp
    return specs.parse(
        bytes(item.spec),  # a copy: the result is kept, and a Raw would keep its whole page
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        created_us=_created_us(created) if created else absent_us,
    )


def item_of(document: Mapping[str, Any], *, namespace: str = "") -> Schedule:
    """Return the object of a decoded JSON or YAML document, without its status.

    Metadata that is missing or has a wrong type counts as absent.

    Args:
        namespace: the namespace if the document names none.
    """
    found = document.get("metadata")
    metadata: Mapping[str, Any] = found if isinstance(found, dict) else {}
    generation, created = metadata.get("generation"), metadata.get("creationTimestamp")
    spec = document.get("spec")
    return Schedule(
        metadata=port.Metadata(
            name=str(metadata.get("name") or ""),
            namespace=str(metadata.get("namespace") or namespace),
            uid=str(metadata.get("uid") or ""),
            generation=generation if isinstance(generation, int) else 0,
            creation_timestamp=created if isinstance(created, str) else None,
        ),
        spec=msgspec.Raw(msgspec.json.encode({} if spec is None else spec)),
    )


def is_suspended(suspend: object, until: str | None, now_us: int) -> bool:
    """Whether a suspension with these fields is in force; also if its end cannot be parsed."""
    if suspend and until:
        with contextlib.suppress(ValueError):
            return times.parse_us(until) > now_us
    return bool(suspend)


@functools.lru_cache(maxsize=4_096)  # thousands of Schedules were created in the same second
def _created_us(text: str) -> int:
    return _instant_us(text, "metadata.creationTimestamp")
