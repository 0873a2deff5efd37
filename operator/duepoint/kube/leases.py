"""Compare-and-swap on one ``coordination.k8s.io/v1`` Lease.

The Lease is replaced as a whole, under the resource version it was read at, so that of two writers
one loses and knows it. Foreign metadata is kept. A Lease with invalid fields is read as far as
possible: a missing holder is "", a missing number 0. The elector decides who may write the Lease,
and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from duepoint import services, telemetry
from duepoint.kube import errors, port, times

#: The part of ``services.Health`` for the Lease.
HEALTH_PART = "lease"
_GROUP_VERSION = "/apis/coordination.k8s.io/v1"
#: leaseTransitions is an int32, and leaseDurationSeconds too.
INT32_MAX = 2**31 - 1

#: The timeout of one call; the elector has a timeout of its own around it.
TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A parsed Lease; times in microseconds of UTC, only for people to read.

    Attributes:
        holder: the identity of the holder; "" = none.
        transitions: how often the holder has changed.
        annotations: replaced as a whole by a write.
        version: resource version to write from; "" before it exists.
    """

    holder: str
    duration_seconds: int
    transitions: int
    acquired_us: int = 0
    renewed_us: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)


class KubeLease:
    """The Lease of this name on an API server.

    The elector treats every failure as a failed renewal and goes on. So failures are reported to
    ``health`` here, and readiness tells why a lone operator never leads.
    """

    def __init__(self, api: port.Api, namespace: str, name: str, health: services.Health) -> None:
        self._api = api
        self._health = health
        health.expect(HEALTH_PART)
        self._namespace = namespace
        self._name = name
        self._collection = port.path(_GROUP_VERSION, namespace, "leases")
        self._path = port.path(_GROUP_VERSION, namespace, "leases", name)

    async def get(self) -> Lease | None:
        """Read the Lease; None = there is none."""
        return await self._call("GET", self._path, none_for=(errors.NotFound,))

    async def create(self, lease: Lease) -> Lease | None:
        """Create the Lease and return it; None = another one exists."""
        new = self._document(replace(lease, version="", metadata={}))
        return await self._call("POST", self._collection, new, none_for=(errors.Conflict,))

    async def update(self, lease: Lease) -> Lease | None:
        """Write the Lease and return it; None = it changed since it was read, or is gone."""
        changed = self._document(lease)
        refused = (errors.Conflict, errors.NotFound)
        return await self._call("PUT", self._path, changed, none_for=refused)

    async def _call(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        none_for: tuple[type[errors.ApiError], ...],
    ) -> Lease | None:
        try:
            answer = await self._api.request(verb, path, body, timeout_seconds=TIMEOUT_SECONDS)
            lease = _lease(answer)
        except errors.ApiError as trouble:
            if not isinstance(trouble, none_for):
                if self._health.unwell(HEALTH_PART, str(trouble)):
                    telemetry.logger.warning("the Lease cannot be reached", error=str(trouble))
                raise
            lease = None
        self._health.well(HEALTH_PART)
        return lease

    def _document(self, lease: Lease) -> dict[str, Any]:
        metadata = {**lease.metadata, "name": self._name, "namespace": self._namespace}
        metadata.pop("managedFields", None)
        metadata["annotations"] = dict(lease.annotations)
        if lease.version:
            metadata["resourceVersion"] = lease.version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": lease.holder or None,
                "leaseDurationSeconds": max(1, min(lease.duration_seconds, INT32_MAX)),
                "leaseTransitions": max(0, min(lease.transitions, INT32_MAX)),
                "acquireTime": times.micro_time_text(lease.acquired_us),
                "renewTime": times.micro_time_text(lease.renewed_us),
            },
        }


_any_decoder = msgspec.json.Decoder()


def _lease(body: bytes) -> Lease:
    document = _object(port.decoded(_any_decoder, body, "Lease"))
    metadata, spec = _object(document.get("metadata")), _object(document.get("spec"))
    return Lease(
        holder=str(spec.get("holderIdentity") or ""),
        duration_seconds=_number(spec.get("leaseDurationSeconds")),
        transitions=_number(spec.get("leaseTransitions")),
        acquired_us=_instant(spec.get("acquireTime")),
        renewed_us=_instant(spec.get("renewTime")),
        annotations=_object(metadata.get("annotations")),
        version=str(metadata.get("resourceVersion") or ""),
        metadata=metadata,
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _instant(value: object) -> int:
    try:
        return times.parse_us(str(value)) if value else 0
    except ValueError:
        return 0
