"""Which cluster this is, and what a Lease says of the installation behind it.

A cluster has no name of its own, but its namespaces have uids. The uid of kube-system stays for as
long as the cluster does; where that namespace may not be read (an installation with rights in its
own namespaces only) the installation's namespace stands for it.

``controller.maintenance.installation`` writes the state of the installation; commands of
people who see no more of the operator's namespace read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from duepoint import errors as base
from duepoint.kube import errors, port

SYSTEM = "kube-system"

#: One of the two requests.
TIMEOUT_SECONDS = 5.0


class Unidentified(base.TryLater):
    """Neither of the two namespaces may be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The uids of the two namespaces; "" for one that may not be read."""

    cluster: str
    home: str


async def identity(api: port.Api, home: str) -> Identity:
    """Who this cluster is, seen from the namespace of the installation.

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


# -- the state that a Lease carries ----------------------------------------------------------------

ANNOTATION = "duepoint.dev/installation"


class InstallationState(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What is known of an installation.

    Attributes:
        at: when this was true, RFC 3339.
        redis: name and version of the server; empty while it has not been read.
        redis_down_since: since when Redis does not answer, RFC 3339; empty where it does.
        troubles: of the leader: parts that are not well; with a text where that is our own.
        worker_troubles: the same of each living worker.
        workers: living workers; None while Redis has not answered yet.
        due, lag_seconds: points that are due, and how long the oldest has been.
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
    """The state that a Lease carries; None where it carries none, or one of another version."""
    try:
        return msgspec.json.decode(annotations.get(ANNOTATION, ""), type=InstallationState)
    except msgspec.DecodeError:
        return None
