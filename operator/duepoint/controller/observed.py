"""One state of a Schedule, ScheduleRun or ScheduleSet, as a list, a read or the watch showed it.

``of_object`` turns what the API server answers into an ``Observed`` value; nothing else does. The
watch brings metadata only (``of_change``): which object has which version and generation. Spec and
status stay JSON text until a decision needs them: of the objects that a takeover lists, nearly all
are applied already and are never decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duepoint.kube import port, schedules, times

_UNTIL = b'"suspendUntil"'
#: From here on an object is large.
LARGE_BYTES = 32 * 1024
#: Stands for a spec or status that was not looked at.
UNKNOWN = b"{}"


class Observed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One state of one Schedule, ScheduleRun or ScheduleSet.

    Attributes:
        version: metadata.resourceVersion as a number, higher is newer; 0 where it is not known.
        created: metadata.creationTimestamp; empty where it is not known.
        deleted: it is gone, or on its way: a deletion cannot be taken back.
        spec, status: JSON text of ``.spec`` and ``.status``; ``{}`` where absent.
    """

    namespace: str
    name: str
    uid: str
    generation: int = 0
    version: int = 0
    created: str = ""
    deleted: bool = False
    spec: bytes = UNKNOWN
    status: bytes = UNKNOWN

    @property
    def size(self) -> int:
        """Bytes of the texts."""
        return len(self.spec) + len(self.status)

    @property
    def has_texts(self) -> bool:
        """Whether the object was listed or read."""
        return self.spec != UNKNOWN

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.name}"

    def without_texts(self) -> Observed:
        """The same without spec and status, which may be large."""
        return msgspec.structs.replace(self, spec=UNKNOWN, status=UNKNOWN)

    @property
    def created_us(self) -> int:
        return times.parse_us(self.created) if self.created else 0

    @property
    def may_resume(self) -> bool:
        """Whether a suspension of it may end by itself."""
        return _UNTIL in self.spec


def of_object(
    item: schedules.Schedule | schedules.ScheduleRun | schedules.ScheduleSet,
) -> Observed:
    """An object that was listed or read, with its texts."""
    metadata = item.metadata
    return Observed(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        version=port.version_of(metadata),
        created=metadata.creation_timestamp or "",
        deleted=metadata.deletion_timestamp is not None,
        spec=bytes(item.spec),
        status=bytes(item.status),
    )


def of_change(change: str | None, metadata: Mapping[str, Any]) -> Observed:
    """An object of which the watch shows the metadata; it has no texts.

    Args:
        change: ADDED, MODIFIED or DELETED.
        metadata: as the API server has it.
    """
    read = msgspec.convert(metadata, port.Metadata)
    return of_metadata(read, is_deleted=change == "DELETED")


def of_metadata(metadata: port.Metadata, *, is_deleted: bool) -> Observed:
    """An object of which only the metadata was read."""
    return Observed(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        version=port.version_of(metadata),
        deleted=is_deleted or metadata.deletion_timestamp is not None,
    )
