"""The Job of a run and its Pods as they change, for a command that follows them.

Two watches keep both up to date, or lists where watching is not allowed; ``wait`` returns when
something has changed. A Job that was deleted counts as over, and so does a container of a Pod that
was deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, port

#: A list that failed is repeated after so long.
_AGAIN_SECONDS = 1.0
#: Who may list and not watch has lists in place of changes, this far apart.
_POLL_SECONDS = 2.0
#: Pods of a run that has just begun are listed so often until a container has started.
_POLL_STARTING_SECONDS = 0.5
_ENDED = ("Succeeded", "Failed")
#: Why a container of a Pod waits that is being created.
_STARTING = {"", "ContainerCreating", "PodInitializing"}

ItemT = TypeVar("ItemT", bound=port.KubeObject)


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


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


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    restart_policy: str = ""
    init_containers: tuple[_Container, ...] | None = None
    containers: tuple[_Container, ...] | None = None


class Pod(msgspec.Struct, frozen=True):
    """A Pod, as far as its logs need it."""

    metadata: port.Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def is_starting(self) -> bool:
        """Whether none of its containers has started, for no other reason than time."""
        listed = (
            *(self.status.init_container_statuses or ()),
            *(self.status.container_statuses or ()),
        )
        waiting = [each.state.waiting.reason for each in listed if each.state.waiting is not None]
        return (
            len(waiting) == len(listed)
            and set(waiting) <= _STARTING
            and self.status.phase in ("", "Pending")
            and not _unscheduled(self)
        )

    @property
    def containers(self) -> list[str]:
        """Their names, in the order in which they start."""
        listed = (*(self.spec.init_containers or ()), *(self.spec.containers or ()))
        return [each.name for each in listed]


class _JobStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class _Job(msgspec.Struct, frozen=True):
    metadata: port.Metadata
    status: _JobStatus = _JobStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """How a container stands.

    Attributes:
        is_over: it has ended and will not start again.
        restarts: how often it was started again.
        waiting: why it has not started, in the words of the scheduler or the kubelet.
    """

    is_over: bool
    restarts: int = 0
    waiting: str = ""


def state_of(pod: Pod | None, container: str) -> ContainerState:
    """Of a container in a Pod; None: the Pod is gone."""
    if pod is None or pod.status.phase in _ENDED:
        return ContainerState(is_over=True)
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    found = next((each for each in statuses if each.name == container), _ContainerStatus())
    if (ended := found.state.terminated) is not None:
        is_over = not _starts_again(pod, container, ended)
        return ContainerState(is_over=is_over, restarts=found.restart_count)
    waiting = _unscheduled(pod)
    if (why := found.state.waiting) is not None:
        waiting = _words(why.reason, why.message)
    return ContainerState(is_over=False, restarts=found.restart_count, waiting=waiting)


def _starts_again(pod: Pod, container: str, ended: _Terminated) -> bool:
    first = next((one for one in pod.spec.init_containers or () if one.name == container), None)
    policy = (first.restart_policy if first else "") or pod.spec.restart_policy
    if first is not None and not first.restart_policy and ended.exit_code == 0:
        return False
    return policy == "Always" or (policy == "OnFailure" and ended.exit_code != 0)


def _unscheduled(pod: Pod) -> str:
    for one in pod.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False":
            return _words(one.reason, one.message)
    return ""


def _words(reason: str, message: str) -> str:
    return ": ".join(filter(None, (reason, message)))


async def pods_of(server: clusters.ClusterSession, job_name: str) -> list[Pod]:
    """The Pods of a Job, oldest first; raises kube_errors.ApiError."""
    listed = await port.listed(server.api, _path(server), Pod, query=_query(job_name))
    return sorted(listed, key=lambda pod: pod.metadata.creation_timestamp or "")


async def started_pods(
    server: clusters.ClusterSession, job_name: str, patience_seconds: float
) -> list[Pod]:
    """The same, once one has a container that has started, or the time is over."""
    until = time.monotonic() + patience_seconds
    while True:
        pods = await pods_of(server, job_name)
        if (pods and not all(pod.is_starting for pod in pods)) or time.monotonic() > until:
            return pods
        await asyncio.sleep(_POLL_STARTING_SECONDS)


def _path(server: clusters.ClusterSession) -> str:
    return port.path("/api/v1", server.namespace, "pods")


def _query(job_name: str) -> dict[str, str]:
    return {"labelSelector": f"batch.kubernetes.io/job-name={job_name}"}


class RunPods:
    """The Pods of a Job, by name, and whether the Job is over."""

    def __init__(self, server: clusters.ClusterSession, job_name: str) -> None:
        self._server = server
        self._job_name = job_name
        self._changed = asyncio.Condition()
        self._are_pods_known = self._is_job_known = False
        self.pods: dict[str, Pod] = {}
        self.is_over = False

    async def watch(self) -> None:
        """Keep them up to date, for ever; raises kube_errors.ApiError: they may not be listed."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._watch_pods())
            both.create_task(self._watch_job())

    async def wait(
        self, condition: Callable[[], bool], timeout_seconds: float | None = None
    ) -> bool:
        """Until the condition holds, at most so many seconds; whether it holds."""
        try:
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    async def wait_for_change(
        self, pod: str, container: str, known: ContainerState, timeout_seconds: float
    ) -> bool:
        """Until the container stands otherwise; whether it does."""
        return await self.wait(lambda: self.state(pod, container) != known, timeout_seconds)

    async def refresh(self) -> None:
        """List the Pods now: of a Job that is over, a watch may not have shown the last."""
        while True:
            try:
                await self._listed_pods()
            except kube_errors.Unauthorized:
                raise
            except (kube_errors.Gone, errors.TryLater):
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return

    def state(self, pod: str, container: str) -> ContainerState:
        """How a container stands."""
        return state_of(self.pods.get(pod), container)

    @property
    def is_listed(self) -> bool:
        """Whether the Job and its Pods are known."""
        return self._are_pods_known and self._is_job_known

    async def _watch_pods(self) -> None:
        path, query = _path(self._server), _query(self._job_name)
        while True:
            try:
                version = await self._listed_pods()
                async for change in _changes(self._server.api, path, Pod, version, query):
                    async with self._changed:
                        self._apply(change)
                        self._changed.notify_all()
            except kube_errors.Unauthorized:
                raise
            except (kube_errors.Gone, errors.TryLater):
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _listed_pods(self) -> str:
        path, query = _path(self._server), _query(self._job_name)
        version, listed = await _listed(self._server.api, path, Pod, query)
        async with self._changed:
            self.pods = {pod.metadata.name: pod for pod in listed}
            self._are_pods_known = True
            self._changed.notify_all()
        return version

    def _apply(self, change: port.WatchEvent[Pod]) -> None:
        name = change.item.metadata.name
        if change.type is port.ChangeType.DELETED:
            self.pods.pop(name, None)
        else:
            self.pods[name] = change.item

    async def _watch_job(self) -> None:
        path = jobs.collection(self._server.namespace)
        query = {"fieldSelector": f"metadata.name={self._job_name}"}
        while True:
            try:
                version, listed = await _listed(self._server.api, path, _Job, query)
                await self._set_over(not listed or _is_over(listed[0]))
                async for change in _changes(self._server.api, path, _Job, version, query):
                    is_gone = change.type is port.ChangeType.DELETED
                    await self._set_over(is_gone or _is_over(change.item))
            except kube_errors.Unauthorized:
                raise
            except (kube_errors.Gone, errors.TryLater):
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _set_over(self, is_over: bool) -> None:  # noqa: FBT001 - the fact itself
        async with self._changed:
            self.is_over, self._is_job_known = is_over, True
            self._changed.notify_all()


def _is_over(job: _Job) -> bool:
    return any(
        one.type in ("Complete", "Failed") and one.status == "True"
        for one in job.status.conditions or ()
    )


async def _listed(
    api: port.Api, path: str, item_type: type[ItemT], query: dict[str, str]
) -> tuple[str, list[ItemT]]:
    """A list, and the version from which a watch goes on."""
    version = ""
    items: list[ItemT] = []
    async for page in api.list_pages(path, item_type, query=query):
        version = page.metadata.resource_version
        items.extend(page.items)
    return version, items


async def _changes(
    api: port.Api, path: str, item_type: type[ItemT], version: str, query: dict[str, str]
) -> AsyncIterator[port.WatchEvent[ItemT]]:
    """What a watch shows; where it is not allowed nothing, until the next list is due."""
    try:
        async for change in api.watch(path, item_type, version, query=query):
            yield change
    except kube_errors.Forbidden:
        await asyncio.sleep(_POLL_SECONDS)
