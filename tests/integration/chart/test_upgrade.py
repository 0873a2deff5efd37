"""From the chart of an earlier commit to this one and away again: Schedules stay as they are.

The earlier chart is packaged from this repository's history: the newest release tag, or else the
newest commit whose chart is another one. DUEPOINT_UPGRADE_FROM names any other revision.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.integration.chart.helm import CHART, Helm, values
from tests.integration.crds import kubeapi
from tests.support import history

pytestmark = pytest.mark.xdist_group("chart")

SCHEDULE = {
    "apiVersion": "duepoint.dev/v1alpha1",
    "kind": "Schedule",
    "metadata": {"name": "nightly", "labels": {"team": "billing"}},
    "spec": {"schedule": "0 3 * * *", "webhook": {"url": "https://a.example/"}},
}


@pytest.fixture(scope="module")
def earlier_chart(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the earlier chart, as a release has it."""
    folder = tmp_path_factory.mktemp("earlier")
    history.extract_former(folder, "charts/duepoint", tags=True)
    helm.run("package", str(folder / "charts" / "duepoint"), f"--destination={folder}")
    [packaged] = folder.glob("*.tgz")
    return packaged


def _unchanged(thing: dict[str, Any]) -> dict[str, Any]:
    kept = ("uid", "generation", "creationTimestamp", "labels", "resourceVersion")
    metadata = {key: thing["metadata"][key] for key in kept}
    assert "deletionTimestamp" not in thing["metadata"]
    return {"metadata": metadata, "spec": thing["spec"]}


@pytest.mark.usefixtures("duepoint_plane")
def test_an_upgrade_and_an_uninstall_leave_schedules_and_the_blob_key(
    cluster_helm: Helm,
    api: kubeapi.KubeApi,
    earlier_chart: Path,
    restricted_namespace: str,
    team_namespace: str,
) -> None:
    release = f"r{uuid.uuid4().hex[:6]}"
    place = f"--namespace={restricted_namespace}"
    options = [place, "--take-ownership", f"--values={values('development')}"]
    cluster_helm.run("install", release, str(earlier_chart), *options)
    try:
        path = f"/apis/duepoint.dev/v1alpha1/namespaces/{team_namespace}/schedules"
        made = api.request("POST", path, SCHEDULE)
        assert made.ok, made.body
        before = _unchanged(api.get(f"{path}/nightly"))
        secret = f"/api/v1/namespaces/{restricted_namespace}/secrets/{release}-duepoint-blob-key"
        key = api.get(secret)["data"]
        cluster_helm.run("upgrade", release, str(CHART), *options)
        assert _unchanged(api.get(f"{path}/nightly")) == before
        assert api.get(secret)["data"] == key
        workers = api.get(
            f"/apis/apps/v1/namespaces/{restricted_namespace}/deployments/{release}-duepoint-worker"
        )
        assert workers["metadata"]["labels"]["helm.sh/chart"].startswith("duepoint-")
    finally:
        cluster_helm.run("uninstall", release, place)
    assert _unchanged(api.get(f"{path}/nightly")) == before
    assert api.get(secret)["data"] == key


@pytest.mark.usefixtures("duepoint_plane")
def test_an_upgrade_that_changes_nothing_restarts_no_pod(
    cluster_helm: Helm, api: kubeapi.KubeApi, restricted_namespace: str
) -> None:
    release = f"r{uuid.uuid4().hex[:6]}"
    place = f"--namespace={restricted_namespace}"
    options = [place, "--take-ownership", f"--values={values('development')}"]
    cluster_helm.run("install", release, str(CHART), *options)
    try:
        path = f"/apis/apps/v1/namespaces/{restricted_namespace}/deployments"
        templates = {
            one["metadata"]["name"]: one["spec"]["template"] for one in api.get(path)["items"]
        }
        assert len(templates) == 3
        cluster_helm.run("upgrade", release, str(CHART), *options)
        after = {one["metadata"]["name"]: one for one in api.get(path)["items"]}
        assert {name: one["spec"]["template"] for name, one in after.items()} == templates
        assert {one["metadata"]["generation"] for one in after.values()} == {1}
    finally:
        cluster_helm.run("uninstall", release, place)
