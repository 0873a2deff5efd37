"""The identity of the cluster, and the state of the installation on its Lease.

A cluster has no name of its own, but its namespaces have uids. The uid of kube-system lasts as long
as the cluster. If the installation may not read that namespace, because it has rights in its own
namespaces only, we use the uid of its own namespace instead.

``controller.maintenance.installation`` writes the state of the installation. Commands read it for
users who may read nothing else in the operator's namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from duepoint import errors as base
from duepoint.kube import errors, port

SYSTEM = "kube-system"

#: The timeout of each of the two requests.
TIMEOUT_SECONDS = 5.0


class Unidentified(base.TryLater):
    """This account may read neither of the two namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The uids of the two namespaces; "" = this account may not read it."""

    cluster: str
    home: str


async def identity(api: port.Api, home: str) -> Identity:
    """Read the identity of this cluster; ``home`` is the namespace of the installation.

    Raises:
        Unidentified: this account may read neither namespace.
        ApiError: no answer.
    """
    found = Identity(cluster=await _uid(api, SYSTEM), home=await _uid(api, home))
    if not (found.cluster or found.home):
        raise Unidentified(
            f"this account may get neither the namespace {SYSTEM} nor {home}, so Duepoint"
            " cannot verify that the index in Redis belongs to this cluster; let it get one of them"
        )
    return found


async def _uid(api: port.Api, name: str) -> str:
    path = port.path("/api/v1", None, "namespaces", name)
    try:
        answer = await api.request(
            "GET", path, accept=port.JSON_METADATA, timeout_seconds=TIMEOUT_SECONDS
        )
    except (errors.Forbidden, errors.NotFound):
        return ""
    return port.metadata(answer, f"GET {path}").uid


# -- the state on a Lease --------------------------------------------------------------------------

ANNOTATION = "duepoint.dev/installation"


class InstallationState(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The state of an installation.

    Attributes:
        at: the time of this state, RFC 3339.
        redis: name and version of the server; empty = not read yet.
        redis_down_since: since when Redis has not answered, RFC 3339; empty = it answers.
        troubles: the leader's parts that are not well, with their texts if these are our own.
        worker_troubles: the same for each living worker.
        workers: the number of living workers; None = Redis has not answered yet.
        due, lag_seconds: the number of due points, and how long the oldest has been due.
        memory_limit_bytes: 0 = none.
    """

    at: str = ""
    version: str = ""
    redis: str = ""
    redis_down_since: str = ""
    troubles: dict[str, str] = msgspec.field(default_factory=dict)
    worker_troubles: dict[str, str] = msgspec.field(default_factory=dict)
    workers: int | None = None
    due: int = 0
    lag_seconds: float = 0.0
    clock_skew_seconds: float | None = None
    memory_used_bytes: int = 0
    memory_limit_bytes: int = 0


def read(annotations: Mapping[str, str]) -> InstallationState | None:
    """Return the state on a Lease; None = there is none, or one of another version."""
    try:
        return msgspec.json.decode(annotations.get(ANNOTATION, ""), type=InstallationState)
    except msgspec.DecodeError:
        return None
