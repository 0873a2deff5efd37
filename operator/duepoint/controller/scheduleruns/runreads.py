"""ScheduleRuns as they were listed or read.

A payload has up to 64 KiB, and thousands of ScheduleRuns may wait: a large one is read along with
its object, judged and dropped, and read again when the run is enqueued (``payload_of``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from duepoint import errors as base
from duepoint.clock import Clock
from duepoint.controller import observed
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import runstatus
from duepoint.kube import port, schedules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.manualruns import Trigger, Wanted

#: A larger payload is not kept; most are smaller, and are enqueued without another read.
_KEPT_PAYLOAD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """A ScheduleRun that was listed or read.

    Attributes:
        seen: with its status, without its spec.
        wanted: the spec, without a large payload; None where it cannot be carried out, because of
            ``refusal``.
    """

    seen: Observed
    wanted: Wanted | None
    refusal: runstatus.RunVerdict | None = None


def of_object(run: schedules.ScheduleRun) -> ReadRun:
    """A ScheduleRun that was listed or read."""
    metadata = run.metadata
    mark = mark_of(metadata.labels or {}, metadata.annotations or {})
    whole = observed.of_object(run)
    seen = msgspec.structs.replace(whole, kept_in_git=mark, spec=observed.UNKNOWN)
    try:
        wanted = schedules.wanted(whole.spec, created_us=whole.created_us)
    except base.InvalidSpec as invalid:
        first = invalid.errors[0]
        refusal = runstatus.failed(Reason(first.reason), str(invalid))
        return ReadRun(seen=seen, wanted=None, refusal=refusal)
    slots = wanted.slots
    if isinstance(slots, Trigger) and len(slots.payload) > _KEPT_PAYLOAD_BYTES:
        wanted = replace(wanted, slots=replace(slots, payload=b"", is_payload_apart=True))
    return ReadRun(seen=seen, wanted=wanted)


async def payload_of(api: port.Api, seen: Observed) -> bytes | None:
    """The payload of a trigger as it is in the object; None: that is gone. Raises ApiError."""
    run = await schedules.read_run(api, seen.namespace, seen.name)
    if run is None or run.metadata.uid != seen.uid:
        return None
    wanted = schedules.wanted(bytes(run.spec), created_us=seen.created_us)  # a spec never changes
    return wanted.slots.payload if isinstance(wanted.slots, Trigger) else b""


async def all_listed(
    api: port.Api, namespaces: tuple[str, ...], clock: Clock
) -> dict[str, ReadRun]:
    """Every ScheduleRun of these namespaces (empty = all), by uid; raises ApiError."""
    listed: dict[str, ReadRun] = {}
    for namespace in namespaces or (None,):
        path = schedules.collection(namespace, plural=schedules.RUN_PLURAL)
        async for page in api.list_pages(path, schedules.ScheduleRun):
            for item in page.items:
                listed[item.metadata.uid] = of_object(item)
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
