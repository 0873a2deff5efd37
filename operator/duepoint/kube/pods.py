"""Reads how the Pods of a failed Job ended, and why a Job gets no Pods.

A Job whose Pods failed says only BackoffLimitExceeded. A Job whose Pods are refused (Pod Security,
a quota, a missing ServiceAccount, an admission webhook) does not fail: its controller retries for
ever, and only Events about the Job say so.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from duepoint import errors
from duepoint.kube import errors as kube_errors
from duepoint.kube import events, port, times
from duepoint.runs import run

_MESSAGE_LIMIT = 300
#: Reasons of the kubelet that say no more than the exit code.
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
    """A Pod with only the fields that show how it ended."""

    metadata: port.Metadata
    status: _PodStatus = _PodStatus()


async def of_job(api: port.Api, namespace: str, job_name: str, version: str) -> str:
    """Return how a Job's newest failed Pod ended; empty = no Pod has failed, or Pods are gone.

    Args:
        version: the Job's resourceVersion. The Pods are read as they were then: an evicted Pod is
            removed as soon as the Job's status counts it.

    Raises:
        kube_errors.ApiError: we may not list Pods, or the API server does not answer.
    """
    query = {"labelSelector": f"batch.kubernetes.io/job-name={job_name}"}
    path = port.path("/api/v1", namespace, "pods")
    then = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    try:
        listed = await port.listed(api, path, EndedPod, query=query | then)
    except kube_errors.Gone:  # etcd keeps no version that old
        listed = await port.listed(api, path, EndedPod, query=query)
    pods = sorted(listed, key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True)
    return next((words for pod in pods for words in _ends(pod.status)), "")


def _ends(status: _PodStatus) -> Iterator[str]:
    """Yield what ended the Pod and its containers, in words."""
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


# -- why a Job gets no Pods ------------------------------------------------------------------------

_REFUSED = "FailedCreate"

#: Advice by phrases in the Job controller's notes, which end with the API server's message.
_ADVICE = (
    (
        "violates PodSecurity",
        "mend securityContext in the jobTemplate, or the namespace's Pod Security label",
    ),
    ("exceeded quota", "free or raise the quota"),
    ("failed quota", "give the containers the requests and limits that the quota counts"),
    (
        "service account",
        "create the ServiceAccount, or mend serviceAccountName in the jobTemplate",
    ),
    ("webhook", "ask the owner of that admission webhook"),
)
_OTHERWISE = "mend the jobTemplate, or what refuses the Pods"


class _Regarding(msgspec.Struct, frozen=True):
    uid: str = ""


class _SeenSeries(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: str | None = None


class _PodRefusal(msgspec.Struct, frozen=True, rename="camel"):
    metadata: port.Metadata
    reason: str = ""
    note: str = ""
    regarding: _Regarding = _Regarding()
    series: _SeenSeries | None = None
    deprecated_last_timestamp: str | None = None
    event_time: str | None = None


async def newest_pod_refusal(api: port.Api, namespace: str, job_uid: str) -> str:
    """Read the Job controller's note on the newest refusal of a Pod of this Job; "" = none."""
    query = {"fieldSelector": f"regarding.uid={job_uid},reason={_REFUSED}"}
    found = [
        event
        for event in await port.listed(api, events.collection(namespace), _PodRefusal, query)
        if event.reason == _REFUSED and event.regarding.uid == job_uid
    ]

    def last_us(event: _PodRefusal) -> int:
        series = event.series.last_observed_time if event.series is not None else None
        last = series or event.deprecated_last_timestamp or event.event_time
        return times.parse_us(last or event.metadata.creation_timestamp or "1970-01-01T00:00:00Z")

    return max(found, key=last_us).note if found else ""


def pod_advice(note: str) -> str:
    """Return what to do about a refusal."""
    return next((action for sign, action in _ADVICE if sign in note), _OTHERWISE)
