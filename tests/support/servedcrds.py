"""A control plane that serves our CRDs, for tests that are not about the CRDs themselves."""

from __future__ import annotations

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import definitions, install
from tests.support.controlplane import ControlPlane


@pytest.fixture(scope="session")
def duepoint_plane(control_plane: ControlPlane) -> ControlPlane:
    client = kubeapi.KubeApi(control_plane.kubeconfig)
    for crd in definitions():
        install(client, crd)
    client.close()
    return control_plane
