"""Addresses of Services whose ClusterIP only a cluster could give."""

from __future__ import annotations

from typing import Any

import pytest

from duepoint.kube import services
from tests.fakes.fakekubernetes import FakeKubernetes

PORTS = [
    {"name": "http", "port": 80, "protocol": "TCP"},
    {"name": "dns", "port": 53, "protocol": "UDP"},
]


async def a_cluster(**spec: Any) -> FakeKubernetes:
    kubernetes = FakeKubernetes()
    manifest = {
        "metadata": {"namespace": "team", "name": "billing"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": PORTS, **spec},
    }
    await kubernetes.apply("services", manifest)
    return kubernetes


MANAGED = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
MIRRORED = {"endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"}


async def a_slice(
    kubernetes: FakeKubernetes, *addresses: str, port: int = 8080, labels: Any = MANAGED
) -> None:
    manifest = {
        "metadata": {
            "namespace": "team",
            "name": f"slice-{port}",
            "labels": {"kubernetes.io/service-name": "billing", **labels},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]} for address in addresses],
        "ports": [{"name": "http", "port": port}],
    }
    await kubernetes.apply("endpointslices", manifest)


@pytest.mark.parametrize("wanted", [53, "dns", 8080, "https", 0])
async def test_a_port_that_is_not_offered_over_tcp_is_none(wanted: Any):
    kubernetes = await a_cluster(selector={"app": "billing"})
    found = await services.resolve(kubernetes, "team", "billing", wanted)
    assert isinstance(found, services.ServiceUnresolved)
    assert "no such port" in found.message
    assert "team/billing" in found.message


async def test_the_cluster_ip_of_a_service_without_a_selector_is_not_trusted():
    kubernetes = await a_cluster()
    await a_slice(kubernetes, "169.254.169.254")
    found = await services.resolve(kubernetes, "team", "billing", 80)
    assert isinstance(found, services.ServiceResolved)
    assert [host for host, _ in found.addresses] == ["169.254.169.254"]
    assert not found.vouched


@pytest.mark.parametrize(
    "labels", [{}, MIRRORED, {"endpointslice.kubernetes.io/managed-by": "somebody"}]
)
async def test_a_service_with_a_slice_of_another_author_is_not_dialled_by_its_cluster_ip(
    labels: dict[str, str],
):
    kubernetes = await a_cluster(selector={"app": "billing"})
    await a_slice(kubernetes, "10.1.1.1")
    await a_slice(kubernetes, "10.9.9.9", port=8081, labels=labels)
    found = await services.resolve(kubernetes, "team", "billing", 80)
    assert isinstance(found, services.ServiceResolved)
    assert [host for host, _ in found.addresses] == ["10.1.1.1", "10.9.9.9"]
    assert not found.vouched


async def test_a_headless_service_with_a_slice_of_another_author_is_not_vouched_for():
    kubernetes = await a_cluster(clusterIP="None", selector={"app": "billing"})
    await a_slice(kubernetes, "10.9.9.9", labels={})
    found = await services.resolve(kubernetes, "team", "billing", 80)
    assert isinstance(found, services.ServiceResolved)
    assert not found.vouched


async def test_a_service_with_slices_of_the_controller_alone_is_vouched_for():
    kubernetes = await a_cluster(clusterIP="None", selector={"app": "billing"})
    await a_slice(kubernetes, "10.1.1.1")
    await a_slice(kubernetes, "10.1.1.2", port=8081)
    found = await services.resolve(kubernetes, "team", "billing", 80)
    assert isinstance(found, services.ServiceResolved)
    assert found.vouched
