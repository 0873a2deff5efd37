"""helm, with and without a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.integration.chart.helm import Helm
from tests.integration.crds import kubeapi
from tests.support.controlplane import ControlPlane
from tests.support.servedcrds import duepoint_plane
from tools import helm as tools_helm

__all__ = ["duepoint_plane"]


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(program=tools_helm.program())


@pytest.fixture(scope="session")
def cluster_helm(helm: Helm, control_plane: ControlPlane) -> Helm:
    return Helm(program=helm.program, kubeconfig=control_plane.kubeconfig)


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Iterator[kubeapi.KubeApi]:
    client = kubeapi.KubeApi(control_plane.kubeconfig)
    yield client
    client.close()


@pytest.fixture
def restricted_namespace(api: kubeapi.KubeApi, kube_namespace: str) -> str:
    """A namespace in which the API server refuses every Pod that is not restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    assert api.merge(f"/api/v1/namespaces/{kube_namespace}", {"metadata": {"labels": labels}}).ok
    return kube_namespace


@pytest.fixture
def team_namespace(api: kubeapi.KubeApi) -> Iterator[str]:
    """Beside the release's own, in which the policies let no Schedule create Jobs."""
    name = f"team-{uuid.uuid4().hex[:10]}"
    assert api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).ok
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")
