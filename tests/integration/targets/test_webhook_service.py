"""Webhooks to Services of a real API server.

The development cluster routes no ClusterIPs, so what is called is a headless Service whose
endpoints are this machine's own address; loopback addresses are refused in endpoints.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from duepoint import clock
from duepoint.kube import api, kubeconfig
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import endpoints
from tests.support import firings, receiver, webhooktargets

BILLING = firings.a_webhook(service=actions.ServiceRef(name="billing", port="hook", path="/run"))


@pytest.fixture(scope="session")
def own_address():
    """An address of this machine that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return probe.getsockname()[0]


@pytest.fixture
async def known(control_plane):
    access = kubeconfig.credentials_for(control_plane.kubeconfig)
    async with api.ApiSession(access, component="worker") as session:
        yield endpoints.service_cache(session, clock.SystemClock())


@pytest.fixture
def write(control_plane, kube_namespace):
    """Create an object of this namespace; what it is called is in it."""
    admin = control_plane.admin()

    async def one(collection, document):
        prefix, plural = collection.rsplit("/", 1)
        path = f"{prefix}/namespaces/{kube_namespace}/{plural}"
        await asyncio.to_thread(admin.post, path, document)

    return one


async def a_headless_service(write, address, port):
    await write(
        "/api/v1/services",
        {
            "metadata": {"name": "billing"},
            "spec": {"clusterIP": "None", "ports": [{"name": "hook", "port": 80}]},
        },
    )
    await write(
        "/apis/discovery.k8s.io/v1/endpointslices",
        {
            "metadata": {
                "name": "billing-1",
                "labels": {"kubernetes.io/service-name": "billing"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "hook", "port": port}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        },
    )


async def fire(known, namespace, *, allowed=(), webhook=BILLING):
    async with webhooktargets.a_target(known=known, allowed=allowed) as (target, guard):
        given = await target.fire(firings.a_firing(webhook, namespace=namespace))
        return given, guard


async def test_a_ready_endpoint_is_called_by_the_services_name(
    known, write, kube_namespace, own_address
):
    async with receiver.listening(host=own_address) as hears:
        await a_headless_service(write, own_address, hears.port)
        given, guard = await fire(known, kube_namespace, allowed=[f"{own_address}/32"])
        assert isinstance(given, outcome.Delivered)
        host = hears.requests[0].header("host")
        assert host == f"billing.{kube_namespace}.svc:{hears.port}"
        assert hears.requests[0].target == "/run"
        assert guard.opened == [(own_address, hears.port)]


async def test_endpoints_that_somebody_wrote_need_the_allow_list(
    known, write, kube_namespace, own_address
):
    async with receiver.listening(host=own_address) as hears:
        await a_headless_service(write, own_address, hears.port)
        given, guard = await fire(known, kube_namespace)
        assert given.reason is Reason.BLOCKED_ADDRESS
        assert guard.opened == []
        assert hears.connections == 0


async def test_an_external_name_is_refused(known, write, kube_namespace):
    await write(
        "/api/v1/services",
        {
            "metadata": {"name": "billing"},
            "spec": {"type": "ExternalName", "externalName": "metadata.google.internal"},
        },
    )
    given, guard = await fire(known, kube_namespace)
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.BLOCKED_ADDRESS
    assert guard.opened == []


async def test_a_service_that_appears_later_is_found(known, write, kube_namespace, own_address):
    async with receiver.listening(host=own_address) as hears:
        before, _ = await fire(known, kube_namespace, allowed=[f"{own_address}/32"])
        await a_headless_service(write, own_address, hears.port)
        after, _ = await fire(known, kube_namespace, allowed=[f"{own_address}/32"])
    assert isinstance(before, outcome.Retry)
    assert before.reason is Reason.NETWORK
    assert isinstance(after, outcome.Delivered)
