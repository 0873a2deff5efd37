"""ScheduleRuns as a list or the watch showed them; those with a change are read.

The watch brings metadata only. A deletion needs no more; a run that is followed already changes by
our own status writes and is not read again. Every other one is read, as it is at least as new as
the change, by a few workers; one that cannot be read is tried again with backoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from duepoint import services, telemetry
from duepoint.clock import Clock
from duepoint.controller.observed import Observed
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import errors, port, scheduleruns, schedules, times


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


def of_deleted(seen: Observed) -> ObservedRun:
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


_LABELS = (
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
)
_ANNOTATIONS = ("argocd.argoproj.io/tracking-id",)
_HOOKS = ("argocd.argoproj.io/hook", "helm.sh/hook")
#: What Argo CD marks with by default, and what Helm charts carry, too.
_INSTANCE, _MANAGER = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"


def mark_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """What says that an object is kept in Git by a tool that would make it again; else empty.

    Argo CD and Flux leave a label or an annotation on what they apply. A ScheduleRun with such a
    mark and a time to live runs, is deleted, is made again from Git, and runs for ever. Hooks of a
    sync or a release are made for each one and are not kept.
    """
    if any(hook in annotations for hook in _HOOKS):
        return ""
    for name in _LABELS:
        if name in labels:
            return f"label {name}"
    for name in _ANNOTATIONS:
        if name in annotations:
            return f"annotation {name}"
    if _INSTANCE in labels and labels.get(_MANAGER, "") != "Helm":
        return f"label {_INSTANCE}"
    return ""


_READERS = 8


class RunReads:
    """The service; one for each term of a leader.

    Args:
        is_wanted: whether a change, which is no deletion, is to be read.
        offer: takes what was read, and what is gone.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        is_wanted: Callable[[Observed], bool],
        offer: Callable[[ObservedRun], None],
    ) -> None:
        self._api = term.api
        self._is_wanted = is_wanted
        self._offer = offer
        self._reads: WorkQueue[Observed] = WorkQueue(term.clock)
        self._waits: dict[str, Iterator[float]] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        await self._reads.run(self._read, _READERS)

    def observe(self, seen: Observed) -> None:
        """The watch shows this version of a ScheduleRun, without its texts."""
        if seen.deleted:
            self._offer(of_deleted(seen))
        elif self._is_wanted(seen):
            self._reads.put(seen.uid, seen)

    async def _read(self, seen: Observed) -> float | None:
        if not self._is_wanted(seen):
            return None
        try:
            run = await scheduleruns.read(
                self._api, seen.namespace, seen.name, not_before=seen.version
            )
        except errors.ApiError as trouble:
            telemetry.logger.warning("scheduleRun not read", run=seen.identity, error=str(trouble))
            waits = services.backoff(first_seconds=0.5, most_seconds=30.0)
            return next(self._waits.setdefault(seen.uid, waits))
        self._waits.pop(seen.uid, None)
        if run is not None and run.metadata.uid == seen.uid:
            self._offer(of_object(run))
        return None
