"""The Pods of a run's Job: which of their containers have started, and why others have not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import msgspec

from duepoint.cli import cluster as clusters
from duepoint.cli.schedules import gathering
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, port

_POLL_SECONDS = 0.5
#: Why a container of a Pod waits that is being created.
_STARTING = {"", "ContainerCreating", "PodInitializing"}


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Started(msgspec.Struct, frozen=True):
    """When and how does not matter here."""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    running: _Started | None = None
    terminated: _Started | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _State = _State()


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[_Condition, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    init_containers: tuple[_Container, ...] | None = None
    containers: tuple[_Container, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a Pod.

    Attributes:
        starts: how often it has started.
        trouble: why it has not started, in the words of the scheduler or the kubelet; empty if
            it only takes time.
    """

    pod: str
    name: str
    starts: int
    trouble: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A Pod."""

    metadata: port.Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def containers(self) -> list[Container]:
        """In the order in which they start."""
        listed = (*(self.spec.init_containers or ()), *(self.spec.containers or ()))
        return [self._container(each.name) for each in listed]

    def _container(self, name: str) -> Container:
        known = (
            *(self.status.init_container_statuses or ()),
            *(self.status.container_statuses or ()),
        )
        found = next((each for each in known if each.name == name), _ContainerStatus())
        state, trouble = found.state, self._unscheduled()
        if state.waiting is not None and state.waiting.reason not in _STARTING:
            trouble = _words(state.waiting.reason, state.waiting.message)
        has_started = state.running is not None or state.terminated is not None
        starts = found.restart_count + has_started
        return Container(pod=self.metadata.name, name=name, starts=starts, trouble=trouble)

    @property
    def is_over(self) -> bool:
        """Whether no container of it will start any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_starting(self) -> bool:
        """Whether none of its containers has started, for no other reason than time."""
        return not any(one.starts or one.trouble for one in self.containers)

    def _unscheduled(self) -> str:
        for one in self.status.conditions or ():
            if one.type == "PodScheduled" and one.status == "False":
                return _words(one.reason, one.message)
        return ""


def _words(reason: str, message: str) -> str:
    return ": ".join(filter(None, (reason, message)))


async def pods_of(server: clusters.ClusterSession, job_name: str) -> list[Pod]:
    """The Pods of a Job, oldest first; raises kube_errors.ApiError."""
    return [msgspec.convert(pod, Pod) for pod in await gathering.pods(server, job_name)]


async def started_pods(
    server: clusters.ClusterSession, job_name: str, patience_seconds: float
) -> list[Pod]:
    """The same, once one has a container that has started, or the time is over."""
    until = time.monotonic() + patience_seconds
    while True:
        pods = await pods_of(server, job_name)
        if (pods and not all(pod.is_starting for pod in pods)) or time.monotonic() > until:
            return pods
        await asyncio.sleep(_POLL_SECONDS)


async def is_over(server: clusters.ClusterSession, job_name: str) -> bool:
    """Whether the Job has ended or is gone; raises kube_errors.ApiError."""
    try:
        job = await gathering.get(server, jobs.path(server.namespace, job_name))
    except kube_errors.NotFound:
        return True
    return gathering.is_over(job)
