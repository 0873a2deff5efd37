"""ScheduleSets at the API server: the typed object, one read, and the finalizer.

The finalizer keeps the object until its members are gone from Redis; no other kind of Duepoint's
has one. It is written with a JSON Patch that tests uid and version, so that no other finalizer is
lost and no namesake is touched. Statuses are written by ``schedules.write_status``.
"""

from __future__ import annotations

import enum

import msgspec

from duepoint.kube import errors, port, schedules

#: Members are removed before an object with it is gone.
FINALIZER = f"{schedules.GROUP}/members"

_EMPTY = msgspec.Raw(b"{}")


class ScheduleSet(msgspec.Struct, frozen=True):
    """A ScheduleSet; its spec and status still raw."""

    metadata: port.Metadata
    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY

    @property
    def is_held(self) -> bool:
        """Whether it has our finalizer."""
        return FINALIZER in (self.metadata.finalizers or ())


def collection(namespace: str | None = None) -> str:
    """Path of all ScheduleSets of a namespace, or of the cluster."""
    return schedules.collection(namespace, plural=schedules.SET_PLURAL)


async def read(
    api: port.Api, namespace: str, name: str, *, not_before: int = 0
) -> ScheduleSet | None:
    """The ScheduleSet of that name; see ``port.find``."""
    return await port.find(api, collection(namespace), ScheduleSet, name, not_before=not_before)


class Held(enum.Enum):
    """What became of a change of the finalizer."""

    DONE = "done"
    #: The object has changed meanwhile: read it again.
    STALE = "stale"
    GONE = "gone"


async def hold(api: port.Api, item: ScheduleSet) -> Held:
    """The object has our finalizer; raises errors.Unavailable and errors.Forbidden."""
    if item.is_held:
        return Held.DONE
    return await _write(api, item, (*(item.metadata.finalizers or ()), FINALIZER))


async def release(api: port.Api, item: ScheduleSet) -> Held:
    """The object has our finalizer no longer; raises errors.Unavailable and errors.Forbidden."""
    if not item.is_held:
        return Held.DONE
    left = tuple(each for each in item.metadata.finalizers or () if each != FINALIZER)
    return await _write(api, item, left)


async def _write(api: port.Api, item: ScheduleSet, finalizers: tuple[str, ...]) -> Held:
    metadata = item.metadata
    url = schedules.path(metadata.namespace, metadata.name, plural=schedules.SET_PLURAL)
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        {"op": "add", "path": "/metadata/finalizers", "value": list(finalizers)},
    ]
    try:
        await api.request(
            "PATCH", url, patch, content_type=port.JSON_PATCH, accept=port.JSON_METADATA
        )
    except errors.NotFound:
        return Held.GONE
    except (errors.Conflict, errors.Invalid):  # a test of a patch that fails is a 422
        return Held.STALE
    return Held.DONE
