"""A Schedule as it was seen once, by a list or by the watch.

Everything that the controller learns of an object comes through here, so that a list and kopf's
dicts look the same afterwards. Spec and status stay JSON text until somebody needs them: of the
objects that a takeover shows, nearly all are applied already and are never decoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from duepoint.kube import schedules, times


class _Suspension(msgspec.Struct, rename="camel"):
    suspend: bool | None = None
    suspend_until: str | None = None


_suspension = msgspec.json.Decoder(_Suspension)
_UNTIL = b'"suspendUntil"'
#: Stands for a spec or status that was not looked at.
UNKNOWN = b"{}"


class Sighting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One state of one Schedule.

    Attributes:
        created: metadata.creationTimestamp; empty where it is not known.
        deleted: it is gone, or on its way: a deletion cannot be taken back.
        spec, status: JSON text of ``.spec`` and ``.status``; ``{}`` where absent.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    deleted: bool
    spec: bytes
    status: bytes

    @property
    def size(self) -> int:
        """Bytes of the texts."""
        return len(self.spec) + len(self.status)

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.name}"

    def without_texts(self) -> Sighting:
        """The same without spec and status, which may be large."""
        return msgspec.structs.replace(self, spec=UNKNOWN, status=UNKNOWN)

    @property
    def created_us(self) -> int:
        return _instant(self.created)

    def suspended_until_us(self) -> int | None:
        """When its suspension ends by itself; None where it has no such end."""
        if _UNTIL not in self.spec:
            return None
        try:
            read = _suspension.decode(self.spec)
            return _instant(read.suspend_until) if read.suspend and read.suspend_until else None
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None  # the reconciler says what is wrong with it


def of_listed(schedule: schedules.Schedule) -> Sighting:
    """A Schedule of one of our own lists."""
    return of_change("", schedule)


def of_change(change: str, schedule: schedules.Schedule) -> Sighting:
    """A Schedule of a watch; ``change`` is ADDED, MODIFIED or DELETED, empty where it is listed."""
    metadata = schedule.metadata
    return Sighting(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        created=metadata.creation_timestamp or "",
        deleted=change == "DELETED" or metadata.deletion_timestamp is not None,
        spec=bytes(schedule.spec),
        status=bytes(schedule.status),
    )


def of_watched(change: str | None, body: Mapping[str, Any]) -> Sighting:
    """A Schedule as kopf hands it over; ``change`` is ADDED, MODIFIED, DELETED or None."""
    metadata = body["metadata"]
    return Sighting(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created=metadata.get("creationTimestamp") or "",
        deleted=change == "DELETED" or metadata.get("deletionTimestamp") is not None,
        spec=_text(body.get("spec") or {}),
        status=_text(body.get("status") or {}),
    )


def _text(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except OverflowError:  # a whole number of more than 64 bits, which a payload may have
        return json.dumps(value, separators=(",", ":")).encode()


def of_name(
    namespace: str, name: str, uid: str, *, generation: int = 0, deleted: bool = False
) -> Sighting:
    """An object of which no more needs to be known."""
    return Sighting(
        namespace=namespace,
        name=name,
        uid=uid,
        generation=generation,
        created="",
        deleted=deleted,
        spec=UNKNOWN,
        status=UNKNOWN,
    )


def _instant(text: str | None) -> int:
    return times.parse_us(text) if text else 0
