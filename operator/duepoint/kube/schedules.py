"""Schedules and ScheduleRuns at the API server: paths, typed structs, one read, status writes.

Only metadata is decoded at once; spec and status stay raw bytes until they are needed, which
makes a list of 100,000 cheap (14 ms per 5,000, a tenth of untyped decoding) and keeps one object
that does not fit our types from spoiling the page it is on. A ``msgspec.Raw`` of a list refers to
the bytes of its whole page: ``copy()`` it before keeping it.

A status is written without reading the object first: a JSON Patch tests ``/metadata/uid`` and then
replaces ``/status`` as a whole. No read, no conflict, and an object made under the same name after
a deletion is never written to. (The API server silently ignores a uid in a merge patch or an apply
body, so this is the only form that guards.) The CRD refuses a status that turns back, so that a
paused former leader cannot undo a newer one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint.kube import errors, port, wire

GROUP = "duepoint.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Schedule"
PLURAL = "schedules"
RUN_KIND = "ScheduleRun"
RUN_PLURAL = "scheduleruns"

_EMPTY = msgspec.Raw(b"{}")


class Schedule(msgspec.Struct, frozen=True):
    """A Schedule; its spec and status still raw."""

    metadata: port.Metadata
    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY


class ScheduleRun(msgspec.Struct, frozen=True):
    """A ScheduleRun; its spec and status still raw."""

    metadata: port.Metadata
    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY


def collection(namespace: str | None = None, *, plural: str = PLURAL) -> str:
    """Path of all Schedules (or ScheduleRuns) of a namespace, or of the cluster."""
    return port.path(f"/apis/{API_VERSION}", namespace, plural)


def path(namespace: str, name: str, *, plural: str = PLURAL) -> str:
    """Path of one Schedule (or ScheduleRun)."""
    return port.path(f"/apis/{API_VERSION}", namespace, plural, name)


async def read(api: port.Api, namespace: str, name: str, *, not_before: int = 0) -> Schedule | None:
    """The Schedule of that name; see ``port.find``."""
    return await port.find(api, collection(namespace), Schedule, name, not_before=not_before)


async def read_run(
    api: port.Api, namespace: str, name: str, *, not_before: int = 0
) -> ScheduleRun | None:
    """The ScheduleRun of that name; see ``port.find``."""
    runs = collection(namespace, plural=RUN_PLURAL)
    return await port.find(api, runs, ScheduleRun, name, not_before=not_before)


async def delete_run(api: port.Api, namespace: str, name: str, uid: str) -> bool:
    """Delete this very ScheduleRun. False: it was gone already."""
    run = path(namespace, name, plural=RUN_PLURAL)
    try:
        await api.request("DELETE", run, {"preconditions": {"uid": uid}})
    except (errors.NotFound, errors.Conflict):  # Conflict: another one has the name now
        return False
    return True


# -- status ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusTarget:
    """Which object the status belongs to."""

    namespace: str
    name: str
    uid: str
    plural: str = PLURAL


@dataclass(frozen=True, slots=True)
class StatusWritten:
    """The status is what was asked.

    Attributes:
        version: the resourceVersion of the object with it, as a number; 0 = the answer has none.
    """

    version: int = 0


@dataclass(frozen=True, slots=True)
class ObjectReplaced:
    """The object is gone, or another one has its name now: drop the write."""


@dataclass(frozen=True, slots=True)
class StatusRefused:
    """The schema or its guards refused it, a newer status being there: drop the write."""

    message: str


async def write_status(
    api: port.Api, object_: StatusTarget, status: Mapping[str, Any]
) -> StatusWritten | ObjectReplaced | StatusRefused:
    """Replace the whole status; raises errors.Unavailable and errors.Forbidden.

    Repeating it after a lost answer is harmless: the newest state wins.
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
        return ObjectReplaced()
    except errors.Invalid as error:
        # A patch that does not apply is a 422 without a field; what the schema refuses names one.
        return StatusRefused(str(error)) if error.fields else ObjectReplaced()
    try:
        return StatusWritten(port.version_of(wire.metadata(answer, url)))
    except errors.Unavailable:
        return StatusWritten()
