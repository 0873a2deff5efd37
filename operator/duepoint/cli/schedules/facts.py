"""Collects the facts about one Schedule that the user of the command may read.

Only the Schedule itself is required. Objects that the user may not read (Jobs, the operator's
Lease) are left out, and the answer says less. Instants in microseconds, 0 = unknown.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import instants, options
from duepoint.controller.status import published
from duepoint.kube import errors as kube_errors
from duepoint.kube import installation, jobbuilder, jobs, port, schedules
from duepoint.runs.history import PastSlot
from duepoint.schedules import diagnosis, manualruns
from duepoint.schedules.conditions import WITHOUT_SLOTS, ConditionType
from duepoint.schedules.rule import Timing
from duepoint.schedules.slots import Slots
from duepoint.schedules.spec import ScheduleSpec

Object = dict[str, Any]

#: The Lease of an installation with the chart's default names; a status names the real one.
USUAL_LEASE = "duepoint-system/duepoint-operator"
_LEASES = "/apis/coordination.k8s.io/v1"
#: A Lease that was not renewed for longer than this has no holder: its duration is 15 s.
_STALE_US = 20_000_000


class JobFacts(NamedTuple):
    """A Job of the Schedule, and why its Pods do not run, if they do not."""

    name: str
    slot_us: int
    is_over: bool
    pod_trouble: str = ""


class LeaseFacts(NamedTuple):
    """The operator's Lease.

    Attributes:
        holder: empty if nobody holds it.
        leads: whether the holder has renewed it within its duration.
    """

    holder: str = ""
    renewed_us: int = 0
    leads: bool = False
    state: installation.InstallationState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """All facts about a Schedule.

    Attributes:
        spec: None if this version cannot read it; ``invalid`` then says why.
        recent: newest first.
        written: who last wrote each field of the spec, and when.
        jobs: none if they may not be read.
        lease: None if it may not be read, or if the status does not name it.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created_us: int
    spec: ScheduleSpec | None
    invalid: str
    recent: tuple[PastSlot, ...]
    status: published.Status
    written: Mapping[str, tuple[str, int]]
    jobs: tuple[JobFacts, ...] = ()
    lease: LeaseFacts | None = None

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def timing(self) -> Timing:
        """When it runs; never, if this version cannot read the spec."""
        return Timing(schedules=()) if self.spec is None else self.spec.rule.timing

    @property
    def timeline(self) -> Slots | None:
        """The slots of the Schedule, ignoring any suspension."""
        if self.spec is None:
            return None
        return manualruns.timeline_of(
            self.spec.rule, identity=self.identity, created_us=self.created_us
        )

    @property
    def is_current(self) -> bool:
        """Whether an operator has processed the newest edit."""
        return self.status.observed_generation >= self.generation

    @property
    def next_us(self) -> int:
        return published.instant_us(self.status.next_schedule_time)

    @property
    def edited_us(self) -> int:
        """When a field of the spec was last written."""
        return max((at_us for _, at_us in self.written.values()), default=0)

    @property
    def is_over(self) -> bool:
        """Whether no slot is left, or it never has any."""
        return self.status.ready.reason in WITHOUT_SLOTS

    @property
    def is_refused(self) -> bool:
        return self.status.condition(ConditionType.STALLED).status == "True"

    def is_suspended(self, now_us: int) -> bool:
        """Whether no slot runs until it resumes."""
        until_us = self.timing.suspend_until_us
        return self.timing.suspend and (until_us is None or until_us > now_us)

    def diagnosis(self, now_us: int) -> diagnosis.Diagnosis:
        """Return the diagnosis of the Schedule."""
        return diagnosis.of(
            self.status.conditions,
            is_current=self.is_current,
            is_suspended=self.is_suspended(now_us),
        )


def of_object(found: Object) -> ScheduleFacts:
    """Return the facts in a Schedule object from the API server."""
    metadata = found["metadata"]
    shown = published.read(msgspec.json.encode(found.get("status") or {}))
    spec, invalid = None, ""
    try:
        spec = schedules.spec_of(schedules.item_of(found))
    except errors.InvalidSpec as refused:
        invalid = str(refused)
    return ScheduleFacts(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        created_us=published.instant_us(metadata.get("creationTimestamp")),
        spec=spec,
        invalid=invalid,
        recent=tuple(published.slot_of(row) for row in shown.recent_runs),
        status=shown,
        written={
            field.removeprefix("f:"): (
                one.get("manager", ""),
                published.instant_us(one.get("time")),
            )
            for one in sorted(
                metadata.get("managedFields") or (), key=lambda entry: entry.get("time", "")
            )
            for field in (one.get("fieldsV1") or {}).get("f:spec") or ()
        },
    )


# -- asking the API server -----------------------------------------------------------------------


async def gathered(place: options.Place, name: str) -> ScheduleFacts:
    """Read all facts about a Schedule that the user may read."""
    async with clusters.session(place) as server:
        known = of_object(await clusters.schedule(server, name))
        named = known.status.managed_by
        return dataclasses.replace(
            known,
            jobs=await _jobs(server, known),
            lease=await lease_facts(server, named or USUAL_LEASE, is_certain=bool(named)),
        )


async def lease_facts(
    server: clusters.ClusterSession, lease: str, *, is_certain: bool
) -> LeaseFacts | None:
    """Read the operator's Lease; if its name is certain, a missing one means no leader."""
    namespace, _, name = lease.partition("/")
    try:
        found = await clusters.get(server, port.path(_LEASES, namespace, "leases", name))
    except kube_errors.NotFound:
        return LeaseFacts() if is_certain else None
    except kube_errors.ApiError:
        return None
    spec, metadata = found.get("spec") or {}, found.get("metadata") or {}
    holder = str(spec.get("holderIdentity") or "")
    renewed_us = published.instant_us(spec.get("renewTime"))
    return LeaseFacts(
        holder=holder,
        renewed_us=renewed_us,
        leads=bool(holder) and instants.now_us() - renewed_us <= _STALE_US,
        state=installation.read(metadata.get("annotations") or {}),
    )


# -- Jobs ----------------------------------------------------------------------------------------


async def job_objects(server: clusters.ClusterSession, known: ScheduleFacts) -> list[Object]:
    """List the Jobs of the Schedule, newest slot first; raises kube_errors.ApiError."""
    selector = f"{jobbuilder.SCHEDULE_LABEL}={known.name}"
    found = await clusters.get(server, jobs.collection(server.namespace), labelSelector=selector)
    own = [
        job
        for job in found["items"]
        for owner in job["metadata"].get("ownerReferences") or ()
        if owner.get("controller") and owner.get("uid") == known.uid
    ]
    return sorted(own, key=slot_us, reverse=True)


def slot_us(job: Object) -> int:
    """Return the slot of a Job, from its annotation."""
    annotations = job["metadata"].get("annotations") or {}
    return published.instant_us(annotations.get(jobbuilder.SCHEDULED_TIME))


async def _jobs(server: clusters.ClusterSession, known: ScheduleFacts) -> tuple[JobFacts, ...]:
    made = []
    with contextlib.suppress(kube_errors.ApiError):  # they may not be read
        for job in await job_objects(server, known):
            name, has_ended, trouble = job["metadata"]["name"], is_over(job), ""
            with contextlib.suppress(kube_errors.ApiError):  # nor may its Pods
                found = () if has_ended else await pods(server, name)
                trouble = next((why for pod in reversed(found) for why in _troubles(pod)), "")
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
    """List the Pods of a Job, oldest first; raises kube_errors.ApiError."""
    path = port.path("/api/v1", server.namespace, "pods")
    selector = f"batch.kubernetes.io/job-name={job_name}"
    found = await clusters.get(server, path, labelSelector=selector)
    return sorted(found["items"], key=lambda pod: str(pod["metadata"].get("creationTimestamp")))


def has_log(pod: Object) -> bool:
    """Whether ``kubectl logs`` has output for a Pod: its log, or why it cannot start."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in (None, "Pending") or any(True for _ in _troubles(pod))


def _troubles(pod: Object) -> Iterator[str]:
    """Yield why a Pod has not started, in the words of the scheduler and the kubelet."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')}: {condition.get('message')}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield f"{waiting.get('reason')}: {waiting.get('message') or ''}"
