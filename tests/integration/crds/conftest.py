"""The API server with our CRDs, and a namespace for what the tests of this folder store."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.crds import kubeapi

ROOT = Path(__file__).resolve().parents[3]
CRDS = sorted((ROOT / "crds").glob("*.yaml"))
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    return Path(os.environ["KUBECONFIG"])


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[kubeapi.KubeApi]:
    """A client of an API server that serves our CRDs as they are in `crds/`."""
    client = kubeapi.KubeApi(kubeconfig)
    for path in CRDS:
        install(client, yaml.safe_load(path.read_text()))
    yield client
    client.close()


@pytest.fixture(scope="module")
def namespace(api: kubeapi.KubeApi) -> Iterator[str]:
    name = f"crds-{uuid.uuid4().hex[:8]}"
    made = api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.ok, made.body
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")


def install(api: kubeapi.KubeApi, definition: dict[str, Any]) -> None:
    """Apply a CRD and wait until it is served with just this schema."""
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    applied = api.request(
        "PATCH",
        path,
        definition,
        content_type="application/apply-patch+yaml",
        fieldManager="duepoint-tools",  # as `make up` does, so that neither takes fields away
        force="true",
    )
    assert applied.ok, applied.body
    _wait_until(lambda: _is_established(api.get(path)))
    spec = definition["spec"]
    version = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    _wait_until(lambda: api.request("GET", version, limit="1").ok)


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions", [])
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _wait_until(holds: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the API server does not serve the CRD"
        time.sleep(0.05)
