"""Schedules read from a cluster and ScheduleRuns made in it, for ``trigger`` and ``backfill``.

Uses a context of a kubeconfig as kubectl does, with the rights of whoever runs the command. A
ScheduleRun gets its name here and not from the API server, so that a creation whose answer was
lost can be asked for again without making two.
"""

from __future__ import annotations

import contextlib
import difflib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from duepoint import errors
from duepoint.kube import api as kubeapi
from duepoint.kube import errors as kube_errors
from duepoint.kube import kubeconfig, port, schedules, times
from duepoint.schedules import spec as specs

#: Our commands' ScheduleRuns are deleted so long after they have ended.
TTL_SECONDS = 3600

_LABEL = "duepoint.dev/schedule"
_CREATE_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look: a kubeconfig, a context of it, a namespace; None = kubectl's defaults."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An API server, and the namespace that is meant."""

    api: port.Api
    namespace: str


@contextlib.asynccontextmanager
async def session(place: Place) -> AsyncIterator[Cluster]:
    """A session with the cluster.

    Raises:
        errors.InvalidSetting: there are no credentials, or the kubeconfig is wrong.
    """
    access = kubeconfig.found(place.kubeconfig, place.context)
    async with kubeapi.ApiSession(access, component="cli") as api:
        login = await access.login()
        yield Cluster(api=api, namespace=place.namespace or login.namespace)


async def schedule(cluster: Cluster, name: str) -> specs.ScheduleSpec:
    """The Schedule of this name, read.

    Raises:
        errors.InvalidSetting: there is none, or what it says cannot be carried out.
        kube_errors.ApiError: the API server does not answer, or does not allow it.
    """
    try:
        body = await cluster.api.request("GET", schedules.path(cluster.namespace, name))
    except kube_errors.NotFound:
        raise errors.InvalidSetting("NAME", await _nothing_of(cluster, name)) from None
    found = msgspec.json.decode(body, type=schedules.Schedule)
    metadata = found.metadata
    created = metadata.creation_timestamp
    try:
        return specs.parse(
            bytes(found.spec),
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            generation=metadata.generation,
            created_us=times.parse_us(created) if created else 0,
        )
    except errors.InvalidSpec as invalid:
        said = f"Schedule {cluster.namespace}/{name} cannot run: {invalid}"
        raise errors.InvalidSetting("NAME", said) from invalid


async def _nothing_of(cluster: Cluster, name: str) -> str:
    """That there is no such Schedule, and which one may have been meant."""
    said = f"there is no Schedule {cluster.namespace}/{name}"
    names: list[str] = []
    with contextlib.suppress(kube_errors.ApiError):
        path = schedules.collection(cluster.namespace)
        async for page in cluster.api.list_pages(path, schedules.Schedule):
            names += [item.metadata.name for item in page.items]
    if near := difflib.get_close_matches(name, names, n=1):
        return f'{said}; did you mean "{near[0]}"?'
    return f"{said}; kubectl get schedules -n {cluster.namespace} shows those there are"


async def create(
    cluster: Cluster, schedule_name: str, what: dict[str, Any], ttl_seconds: int | None
) -> schedules.ScheduleRun:
    """A new ScheduleRun, once.

    Args:
        what: ``trigger`` or ``backfill`` of the spec.
        ttl_seconds: deleted so long after it has ended; None = kept.

    Raises:
        kube_errors.ApiError: it was refused, or the API server does not answer.
    """
    name = f"{schedule_name[:52].rstrip('.-')}-{secrets.token_hex(4)}"
    spec: dict[str, Any] = {"scheduleName": schedule_name, **what}
    if ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = ttl_seconds
    made = {
        "apiVersion": schedules.API_VERSION,
        "kind": schedules.RUN_KIND,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {_LABEL: schedule_name[:63].rstrip(".-")},
        },
        "spec": spec,
    }
    return msgspec.json.decode(await _made(cluster, name, made), type=schedules.ScheduleRun)


async def _made(cluster: Cluster, name: str, made: dict[str, Any]) -> bytes:
    """Asked again after a lost answer, the name tells that it is there."""
    path = schedules.collection(cluster.namespace, plural=schedules.RUN_PLURAL)
    for left in range(_CREATE_ROUNDS, 0, -1):
        try:
            return await cluster.api.request("POST", path, made)
        except kube_errors.Unavailable:
            if left == 1:
                raise
        except kube_errors.Conflict:
            one = schedules.path(cluster.namespace, name, plural=schedules.RUN_PLURAL)
            return await cluster.api.request("GET", one)
    raise AssertionError("unreachable")
