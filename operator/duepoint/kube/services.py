"""Resolves a Service in the Schedule's own namespace to the addresses for a webhook.

We use the ClusterIP if there is one and Kubernetes itself manages all endpoints behind it; else the
ready endpoints. Kubernetes vouches for a Service that has a selector and only EndpointSlices of the
endpointslice controller. kube-proxy sends traffic for a ClusterIP to the endpoints of every slice
with the Service's name, even if a user wrote that slice (CVE-2021-25740). So we dial the endpoints
of a Service with another slice, and each of them must be on the allow-list. ExternalName is
refused: its author can point that name anywhere. The egress guard makes the final decision for each
address.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from duepoint.kube import errors, port


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResolved:
    """A Service that can be dialled.

    Attributes:
        addresses: IP addresses and ports to connect to, at least one.
        server_name: for the Host header, SNI and the certificate, such as ``billing.shop.svc``.
        vouched: whether Kubernetes manages all endpoints; else each must be on the allow-list.
    """

    addresses: tuple[tuple[str, int], ...]
    server_name: str
    vouched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUnresolved:
    """A Service that cannot be dialled now; ``may_heal``: whether that may change by itself."""

    message: str
    may_heal: bool = True


class _Port(msgspec.Struct, frozen=True):
    port: int | None = None
    name: str | None = None
    protocol: str | None = None


class _ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    external_name: str | None = None
    selector: dict[str, str] | None = None
    ports: tuple[_Port, ...] | None = None


class _Service(msgspec.Struct, frozen=True):
    metadata: port.Metadata
    spec: _ServiceSpec


class _Conditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _Endpoint(msgspec.Struct, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: _Conditions | None = None


class _Slice(msgspec.Struct, frozen=True, rename="camel"):
    metadata: port.Metadata
    endpoints: tuple[_Endpoint, ...] | None = None
    ports: tuple[_Port, ...] | None = None


#: The label with a slice's manager, and the one manager that only uses endpoints of Pods. To forge
#: the label a user needs the right to write EndpointSlices, which no built-in user role has.
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_CONTROLLER = "endpointslice-controller.k8s.io"

_service_decoder = msgspec.json.Decoder(_Service)


async def resolve(
    api: port.Api, namespace: str, name: str, wanted_port: int | str | None
) -> ServiceResolved | ServiceUnresolved:
    """Resolve the addresses for a webhook to this Service.

    Args:
        namespace: the namespace of the Schedule, and so of the Service.
        wanted_port: number or name of a port of the Service; None = its only one.

    Raises:
        errors.Unavailable: try again. errors.Forbidden: the worker lacks the rights.
    """
    path = port.path("/api/v1", namespace, "services", name)
    try:
        body = await api.request("GET", path)
    except errors.NotFound:
        return _unresolved(namespace, name, "there is no such Service")
    spec = port.decoded(_service_decoder, body, f"GET {path}").spec
    if spec.type == "ExternalName" or spec.external_name:
        what = "it is of type ExternalName, which is refused; use `url` instead"
        return _unresolved(namespace, name, what, may_heal=False)
    ports = [each for each in spec.ports or () if each.protocol in (None, "TCP")]
    if wanted_port is not None:
        named = str(wanted_port)
        ports = [each for each in ports if named in (each.name, str(each.port))][:1]
    chosen = ports[0] if len(ports) == 1 else None
    if chosen is None or chosen.port is None:
        return _unresolved(namespace, name, f"it has no such port ({wanted_port})")
    slices = await port.listed(
        api,
        port.path("/apis/discovery.k8s.io/v1", namespace, "endpointslices"),
        _Slice,
        {"labelSelector": f"kubernetes.io/service-name={name}"},
    )
    vouched = bool(spec.selector) and all(
        (each.metadata.labels or {}).get(_MANAGED_BY) == _CONTROLLER for each in slices
    )
    if vouched and spec.cluster_ip not in ("", "None"):  # None: headless
        addresses: tuple[tuple[str, int], ...] = ((spec.cluster_ip, chosen.port),)
    else:
        ready = (address for each in slices for address in _ready_addresses(each, chosen))
        addresses = tuple(dict.fromkeys(ready))
    if not addresses:
        return _unresolved(namespace, name, "it has no ready endpoints")
    return ServiceResolved(
        addresses=addresses, server_name=f"{name}.{namespace}.svc", vouched=vouched
    )


def _ready_addresses(slice_: _Slice, chosen: _Port) -> Iterable[tuple[str, int]]:
    """Yield the ready addresses; a slice's port has the Service port's name and target number."""
    number = next(
        (
            entry.port
            for entry in slice_.ports or ()
            if (entry.name or "") == (chosen.name or "") and entry.port
        ),
        None,
    )
    for endpoint in slice_.endpoints or ():
        if number is None or (endpoint.conditions and endpoint.conditions.ready is False):
            continue
        for host in endpoint.addresses:
            with contextlib.suppress(ValueError):  # type FQDN: we never look up names
                ipaddress.ip_address(host)
                yield host, number


def _unresolved(
    namespace: str, name: str, what: str, *, may_heal: bool = True
) -> ServiceUnresolved:
    message = f"Service {namespace}/{name}: {what}"
    return ServiceUnresolved(message=message, may_heal=may_heal)
