"""Why a Job gets no Pods: what the Job controller said of its last try.

A Job whose Pods are refused (Pod Security, a quota, a missing ServiceAccount, an admission webhook)
does not fail: its controller tries for ever, and says so in Events of the Job alone. In: a Job's
uid. Out: the controller's words, and a remedy. Reads nothing but Events of that Job.
"""

from __future__ import annotations

import urllib.parse

import msgspec

from duepoint.kube import port, times

_REASON = "FailedCreate"

#: Signs in the Job controller's notes, which end with the API server's own words.
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
    ("webhook", "ask whoever runs that admission webhook"),
)
_OTHERWISE = "mend the jobTemplate, or what refuses the Pods"


class _Regarding(msgspec.Struct, frozen=True):
    uid: str = ""


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    metadata: port.Metadata
    reason: str = ""
    note: str = ""
    regarding: _Regarding = _Regarding()
    series: _Series | None = None
    deprecated_last_timestamp: str | None = None
    event_time: str | None = None


async def newest(api: port.Api, namespace: str, job_uid: str) -> str:
    """What was said of the newest refusal of a Pod of this Job; "" where nothing was."""
    quoted = urllib.parse.quote(namespace, safe="")
    pages = api.list_pages(
        f"/apis/events.k8s.io/v1/namespaces/{quoted}/events",
        _Event,
        query={"fieldSelector": f"regarding.uid={job_uid},reason={_REASON}"},
    )
    told = [
        event
        async for page in pages
        for event in page.items
        if event.reason == _REASON and event.regarding.uid == job_uid
    ]
    return max(told, key=_last_us).note if told else ""


def advice(note: str) -> str:
    """What to do about a refusal."""
    return next((what for sign, what in _ADVICE if sign in note), _OTHERWISE)


def _last_us(event: _Event) -> int:
    series = event.series.last_observed_time if event.series is not None else None
    last = series or event.deprecated_last_timestamp or event.event_time
    return times.parse_us(last or event.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
