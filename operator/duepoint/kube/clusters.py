"""Which cluster this is: a cluster has no name of its own, but its namespaces have uids.

The uid of kube-system stays for as long as the cluster does. Where that namespace may not be read
(an installation with rights in its own namespaces only) the installation's namespace stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import errors as base
from duepoint.kube import errors, port, wire

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
    return wire.metadata(answer, f"GET {path}").uid
