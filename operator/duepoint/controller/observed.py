"""One version of a Schedule, ScheduleRun or ScheduleSet, as a list, a read or the watch showed it.

``of_object`` turns an object from the API server into an ``Observed`` value. The watch brings only
metadata (``of_metadata``): the version and generation of an object. Spec and status stay JSON text
until a decision needs them: nearly all objects that a takeover lists are applied already, and are
never decoded.
"""

from __future__ import annotations

import msgspec

from duepoint.kube import port, schedules, times
from duepoint.schedules import actions

#: Stands for a spec or status that was not read.
UNKNOWN = b"{}"


class Observed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One version of one Schedule, ScheduleRun or ScheduleSet.

    Attributes:
        version: metadata.resourceVersion as a number, higher is newer; 0 = unknown.
        created: metadata.creationTimestamp; empty = unknown.
        deleted: whether it is gone or being deleted: a deletion cannot be taken back.
        spec, status: JSON text of ``.spec`` and ``.status``; ``{}`` = absent.
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
        """The size of spec and status in bytes."""
        return len(self.spec) + len(self.status)

    @property
    def is_large(self) -> bool:
        return self.size >= actions.LARGE_BYTES

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.name}"

    def without_texts(self) -> Observed:
        """Return the same without spec and status, which may be large."""
        return msgspec.structs.replace(self, spec=UNKNOWN, status=UNKNOWN)

    @property
    def created_us(self) -> int:
        return times.parse_us(self.created) if self.created else 0


def of_object(item: schedules.Schedule | schedules.ScheduleRun | schedules.ScheduleSet) -> Observed:
    """Return an object that was listed or read, with spec and status."""
    seen = of_metadata(item.metadata)
    return msgspec.structs.replace(seen, spec=bytes(item.spec), status=bytes(item.status))


def of_metadata(metadata: port.Metadata, *, is_deleted: bool = False) -> Observed:
    """Return an object whose metadata alone was read."""
    return Observed(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        version=port.version_of(metadata),
        created=metadata.creation_timestamp or "",
        deleted=is_deleted or metadata.deletion_timestamp is not None,
    )
