"""A ScheduleRun as a list or the watch showed it once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duepoint.clock import Clock
from duepoint.controller.sighting import Sighting
from duepoint.kube import port, schedules, times


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """One state of one ScheduleRun.

    Attributes:
        deleted: it is gone, or on its way: a deletion cannot be taken back.
        labels, annotations: its own; a GitOps tool leaves its mark there.
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


def of_object(run: schedules.ScheduleRun) -> ObservedRun:
    """A ScheduleRun that was listed or read."""
    metadata = run.metadata
    created = metadata.creation_timestamp
    return ObservedRun(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        created_us=times.parse_us(created) if created else 0,
        deleted=metadata.deletion_timestamp is not None,
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        spec=bytes(run.spec),
        status=bytes(run.status),
    )


def of_deleted(seen: Sighting) -> ObservedRun:
    """A ScheduleRun that is gone: all that is known of it is its name."""
    return ObservedRun(
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        generation=seen.generation,
        created_us=0,
        deleted=True,
    )


async def all_listed(
    api: port.Api, namespaces: tuple[str, ...], clock: Clock
) -> dict[str, ObservedRun]:
    """Every ScheduleRun of these namespaces (empty = all), by uid; raises ApiError."""
    listed: dict[str, ObservedRun] = {}
    for namespace in namespaces or (None,):
        path = schedules.collection(namespace, plural=schedules.RUN_PLURAL)
        async for page in api.list_pages(path, schedules.ScheduleRun):
            for item in page.items:
                seen = of_object(item)
                listed[seen.uid] = seen
            await clock.sleep(0)  # other tasks go on between pages
    return listed
