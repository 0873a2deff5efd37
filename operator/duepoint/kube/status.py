"""Writing the status of one object without reading it first.

A JSON Patch that tests ``/metadata/uid`` and then replaces ``/status`` as a whole: no read, no
conflict, and a namesake made after a deletion is never written to. (A uid in a merge patch or an
apply body is silently ignored by the API server, so this is the only form that guards.) The CRD
refuses a status that turns back, so that a paused former leader cannot undo a newer one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint.kube import errors, port, schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """Which object the status belongs to."""

    namespace: str
    name: str
    uid: str
    plural: str = schedules.PLURAL


@dataclass(frozen=True, slots=True)
class Written:
    """The status is what was asked.

    Attributes:
        version: the resourceVersion of the object with it, as a number; 0 = the answer has none.
    """

    version: int = 0


@dataclass(frozen=True, slots=True)
class Replaced:
    """The object is gone, or another one has its name now: drop the write."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The schema or its guards refused it, a newer status being there: drop the write."""

    message: str


async def write(
    api: port.Api,
    object_: Object,
    status: Mapping[str, Any],
    *,
    timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
) -> Written | Replaced | Refused:
    """Replace the whole status; raises errors.Unavailable and errors.Forbidden.

    Repeating it after a lost answer is harmless: the newest state wins.
    """
    try:
        answer = await api.request(
            "PATCH",
            f"{schedules.path(object_.namespace, object_.name, plural=object_.plural)}/status",
            _patch(object_.uid, status),
            content_type=port.JSON_PATCH,
            accept=port.JSON_METADATA,
            timeout_seconds=timeout_seconds,
        )
    except errors.NotFound:
        return Replaced()
    except errors.Invalid as error:
        return Replaced() if _is_failed_test(error) else Refused(str(error))
    return Written(_version(answer))


class _Answer(msgspec.Struct):
    metadata: port.Metadata


_decoder = msgspec.json.Decoder(_Answer)


def _version(answer: bytes) -> int:
    try:
        return port.version_of(_decoder.decode(answer).metadata)
    except msgspec.DecodeError:
        return 0


def _patch(uid: str, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status", "value": dict(status)},
    ]


def _is_failed_test(error: errors.Invalid) -> bool:
    # A patch that does not apply is a 422 without a field; what the schema refuses names one.
    return not error.fields
