"""How the Pods of a failed Job ended: what the Job itself calls BackoffLimitExceeded."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from duepoint import errors
from duepoint.kube import port
from duepoint.runs import run

_MESSAGE_LIMIT = 300
#: Reasons by which the kubelet says no more than the exit code does.
_PLAIN = ("", "Error", "Completed")


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    state: _State = _State()
    last_state: _State = _State()


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    conditions: tuple[_Condition, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class EndedPod(msgspec.Struct, frozen=True):
    """A Pod, as far as its end goes."""

    metadata: port.Metadata
    status: _PodStatus = _PodStatus()


async def of_job(api: port.Api, namespace: str, job_name: str) -> str:
    """How the newest Pod of a Job ended that did not succeed; empty = none did, or they are gone.

    Raises:
        kube_errors.ApiError: Pods may not be listed, or the API server does not answer.
    """
    query = {"labelSelector": f"batch.kubernetes.io/job-name={job_name}"}
    path = port.path("/api/v1", namespace, "pods")
    listed = await port.listed(api, path, EndedPod, query=query)
    pods = sorted(listed, key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True)
    return next((words for pod in pods for words in _ends(pod.status)), "")


def _ends(status: _PodStatus) -> Iterator[str]:
    """What ended the Pod, and its containers, in words."""
    if status.reason:  # the kubelet ended it: Evicted, DeadlineExceeded, NodeLost
        yield _words(status.reason, status.message)
    for condition in status.conditions or ():  # the cluster did: a drain, preemption, a taint
        if condition.type == "DisruptionTarget" and condition.status == "True":
            yield _words(condition.reason, condition.message)
    for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        end = each.state.terminated or each.last_state.terminated
        if end is None or not end.exit_code:
            continue
        container = f"container {errors.quoted(each.name)}"
        code = f"exit code {end.exit_code}"
        if end.reason in _PLAIN:
            yield f"{container} ended with {code}"
        elif end.reason == "OOMKilled":
            yield f"OOMKilled: {container} used more memory than its limit ({code})"
        else:
            yield f"{_words(end.reason, end.message)} ({container}, {code})"


def _words(reason: str, message: str) -> str:
    text = f"{reason}: {message}" if message else reason
    return run.cut(" ".join(text.split()), _MESSAGE_LIMIT)
