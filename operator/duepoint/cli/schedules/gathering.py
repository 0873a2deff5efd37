"""Asks the API server what is known of a Schedule, with the rights of the person who asks.

Only the Schedule itself is needed. What a person may not read (Jobs, Events, the operator's Lease)
is left out, and the answer says less.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from duepoint.cli import cluster as clusters
from duepoint.cli.schedules import facts as facts_
from duepoint.cli.schedules.facts import JobFacts, LeaseFacts, ScheduleFacts
from duepoint.controller.status import texts
from duepoint.kube import errors as kube_errors
from duepoint.kube import installation, jobbuilder, jobs, port, schedules

#: The Lease of an installation by the chart's usual names; a status names the real one.
USUAL_LEASE = "duepoint-system/duepoint-operator"
_LEASES = "/apis/coordination.k8s.io/v1"
#: A Lease that was not renewed for longer than this has no holder: it lasts 15 s.
_STALE_US = 20_000_000
_MOST_EVENTS = 500

Object = dict[str, Any]


async def get(server: clusters.ClusterSession, path: str, **query: str) -> Object:
    """The JSON of a path; raises kube_errors.ApiError."""
    body = await server.api.request("GET", path, query=query or None)
    found = msgspec.json.decode(body)
    return found if isinstance(found, dict) else {}


async def schedule(server: clusters.ClusterSession, name: str) -> Object:
    """The Schedule of this name.

    Raises:
        errors.InvalidSetting: there is none, or no CRD; it names what is near.
    """
    try:
        return await get(server, schedules.path(server.namespace, name))
    except kube_errors.NotFound:
        raise await clusters.unknown_name(server, name) from None


async def facts(server: clusters.ClusterSession, name: str) -> ScheduleFacts:
    """Everything that may be read about a Schedule."""
    known = facts_.of_object(await schedule(server, name))
    named = known.managed_by
    return known.known(
        jobs=await _jobs(server, known),
        notes=await _notes(server, known),
        lease=await lease_facts(server, named or USUAL_LEASE, is_certain=bool(named)),
        is_deleting=await _is_deleting(server),
    )


async def lease_facts(
    server: clusters.ClusterSession, lease: str, *, is_certain: bool
) -> LeaseFacts | None:
    """The operator's Lease; where it is certain to be the right one, a missing one leads not."""
    namespace, _, name = lease.partition("/")
    try:
        found = await get(server, port.path(_LEASES, namespace, "leases", name))
    except kube_errors.NotFound:
        return LeaseFacts(holder="", renewed_us=0, is_stale=True) if is_certain else None
    except kube_errors.ApiError:
        return None
    spec, metadata = found.get("spec") or {}, found.get("metadata") or {}
    renewed_us = texts.instant_us(spec.get("renewTime"))
    return LeaseFacts(
        holder=str(spec.get("holderIdentity") or ""),
        renewed_us=renewed_us,
        is_stale=time.time_ns() // 1_000 - renewed_us > _STALE_US,
        state=installation.read(metadata.get("annotations") or {}),
    )


async def _is_deleting(server: clusters.ClusterSession) -> bool:
    with contextlib.suppress(kube_errors.ApiError):
        found = await get(server, port.path("/api/v1", None, "namespaces", server.namespace))
        return bool((found.get("metadata") or {}).get("deletionTimestamp"))
    return False


async def _notes(
    server: clusters.ClusterSession, known: ScheduleFacts
) -> tuple[tuple[str, str], ...]:
    """Reason and text of the Events about the Schedule, newest first."""
    selector = f"involvedObject.name={known.name},involvedObject.kind={schedules.KIND}"
    try:
        path = port.path("/api/v1", server.namespace, "events")
        found = await get(server, path, fieldSelector=selector, limit=str(_MOST_EVENTS))
    except kube_errors.ApiError:
        return ()
    listed = sorted(_items(found), key=_event_time, reverse=True)
    return tuple((str(one.get("reason") or ""), str(one.get("message") or "")) for one in listed)


def _event_time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    )


# -- Jobs ----------------------------------------------------------------------------------------


async def job_objects(server: clusters.ClusterSession, known: ScheduleFacts) -> list[Object]:
    """The Jobs of the Schedule, newest slot first; raises kube_errors.ApiError."""
    selector = f"{jobbuilder.SCHEDULE_LABEL}={known.name}"
    found = await get(server, jobs.collection(server.namespace), labelSelector=selector)
    own = [job for job in _items(found) if _is_of(job, known)]
    return sorted(own, key=slot_us, reverse=True)


def slot_us(job: Object) -> int:
    """The slot that a Job names."""
    annotations = (job.get("metadata") or {}).get("annotations") or {}
    return texts.instant_us(annotations.get(jobbuilder.SCHEDULED_TIME))


def _is_of(job: Object, known: ScheduleFacts) -> bool:
    owners = (job.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == known.uid for owner in owners)


async def _jobs(
    server: clusters.ClusterSession, known: ScheduleFacts
) -> tuple[JobFacts, ...] | None:
    try:
        listed = await job_objects(server, known)
    except kube_errors.ApiError:
        return None
    made = []
    for job in listed:
        name, has_ended = job["metadata"]["name"], is_over(job)
        trouble = "" if has_ended else await _pod_trouble(server, name)
        made.append(
            JobFacts(name=name, slot_us=slot_us(job), is_over=has_ended, pod_trouble=trouble)
        )
    return tuple(made)


def is_over(job: Object) -> bool:
    """Whether a Job, or a ScheduleRun, has ended."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
        for one in conditions
    )


async def pods(server: clusters.ClusterSession, job_name: str) -> list[Object]:
    """The Pods of a Job, oldest first; raises kube_errors.ApiError."""
    path = port.path("/api/v1", server.namespace, "pods")
    selector = f"batch.kubernetes.io/job-name={job_name}"
    found = await get(server, path, labelSelector=selector)
    return sorted(_items(found), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))


async def _pod_trouble(server: clusters.ClusterSession, job_name: str) -> str:
    try:
        found = await pods(server, job_name)
    except kube_errors.ApiError:
        return ""
    return next((trouble for pod in reversed(found) for trouble in _troubles(pod)), "")


def has_log(pod: Object) -> bool:
    """Whether ``kubectl logs`` has something to say of a Pod: what it wrote, or why it cannot."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in (None, "Pending") or any(True for _ in _troubles(pod))


def _troubles(pod: Object) -> Iterator[str]:
    """Why a Pod has not started, in the words of the scheduler and the kubelet."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')}: {condition.get('message')}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield f"{waiting.get('reason')}: {waiting.get('message') or ''}"


def _items(found: Mapping[str, Any]) -> list[Object]:
    listed = found.get("items")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
