"""A ScheduleRun as it was seen once, by a list or by the watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from duepoint.kube import port, schedules, times


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSighting:
    """One state of one ScheduleRun.

    Attributes:
        deleted: it is gone, or on its way: a deletion cannot be taken back.
        labels, annotations: its own; whoever keeps it in Git has left a mark there.
        spec, status: JSON text of ``.spec`` and ``.status``; ``{}`` where absent.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created_us: int
    deleted: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: bytes = b"{}"
    status: bytes = b"{}"


def of_listed(run: schedules.ScheduleRun) -> RunSighting:
    """A ScheduleRun of one of our own lists."""
    return _of(run.metadata, deleted=False, spec=bytes(run.spec), status=bytes(run.status))


def of_watched(change: str | None, body: Mapping[str, Any]) -> RunSighting:
    """A ScheduleRun as kopf hands it over; ``change`` is ADDED, MODIFIED, DELETED or None."""
    return _of(
        msgspec.convert(body["metadata"], port.Metadata),
        deleted=change == "DELETED",
        spec=msgspec.json.encode(body.get("spec") or {}),
        status=msgspec.json.encode(body.get("status") or {}),
    )


def _of(metadata: port.Metadata, *, deleted: bool, spec: bytes, status: bytes) -> RunSighting:
    created = metadata.creation_timestamp
    return RunSighting(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        created_us=times.parse_us(created) if created else 0,
        deleted=deleted or metadata.deletion_timestamp is not None,
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        spec=spec,
        status=status,
    )
