"""The installation without Helm, by the commands of its page: in, up from an older version, out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.chart.helm import CHART
from tests.integration.crds import kubeapi
from tests.support import pageblocks
from tests.support.controlplane import ControlPlane, wait_until
from tools import helm
from tools.release import manifests

pytestmark = pytest.mark.xdist_group("chart")

PAGE = pageblocks.blocks("docs/howto/install-with-kustomize.md")
KUBECTL = Path(sys.executable).with_name("kubectl")
NAMESPACE = manifests.NAMESPACE
SCHEDULE = {
    "apiVersion": "duepoint.dev/v1alpha1",
    "kind": "Schedule",
    "metadata": {"name": "nightly", "labels": {"team": "billing"}},
    "spec": {"schedule": "0 3 * * *", "webhook": {"url": "https://a.example/"}},
}


def test_the_base_is_what_the_chart_renders() -> None:
    assert manifests.BASE.read_text() == manifests.install_text(), (
        "python -m tools.release.manifests"
    )


def _older(folder: Path) -> str:
    """install.yaml of a release before this one."""
    chart = folder / "duepoint"
    shutil.copytree(CHART, chart)
    about = chart / "Chart.yaml"
    version = yaml.safe_load(about.read_text())["version"]
    about.write_text(about.read_text().replace(version, "0.0.9"))
    return manifests.install_text(chart)


@pytest.fixture
def variables(control_plane: ControlPlane, tmp_path: Path) -> dict[str, str]:
    """The page's reader has kubectl and helm, and is logged in."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "kubectl").symlink_to(KUBECTL)
    (programs / "helm").symlink_to(helm.program())
    return {
        "KUBECONFIG": str(control_plane.kubeconfig),
        "PATH": f"{programs}:/usr/bin:/bin",
    }


@pytest.fixture
def prepared(
    api: kubeapi.KubeApi, duepoint_plane: ControlPlane, variables: dict[str, str]
) -> Iterator[None]:
    assert duepoint_plane
    [first] = PAGE["What must be there first"]
    gone = f"/api/v1/namespaces/{NAMESPACE}"
    wait_until(lambda: api.request("GET", gone).code == 404, "an earlier test's namespace is gone")
    pageblocks.run(first, variables=variables)
    yield
    for each in PAGE["Uninstall"]:
        pageblocks.run(
            each.replace("delete -k", "delete --ignore-not-found -k"), variables=variables
        )
    api.request("DELETE", gone)


def _lasting(thing: dict[str, Any]) -> dict[str, Any]:
    kept = ("uid", "generation", "creationTimestamp", "labels", "resourceVersion")
    assert "deletionTimestamp" not in thing["metadata"]
    return {"spec": thing["spec"], **{key: thing["metadata"][key] for key in kept}}


def _deployments(api: kubeapi.KubeApi) -> list[dict[str, Any]]:
    return list(api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"])


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("prepared")
def test_install_upgrade_and_uninstall_leave_schedules_as_they_are(
    api: kubeapi.KubeApi, variables: dict[str, str], team_namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "install.yaml").write_text(_older(tmp_path))
    pageblocks.run(
        "kubectl apply --server-side -f install.yaml", variables=variables, folder=tmp_path
    )
    versions = {one["metadata"]["labels"]["app.kubernetes.io/version"] for one in _deployments(api)}
    assert versions == {"0.0.9"}
    path = f"/apis/duepoint.dev/v1alpha1/namespaces/{team_namespace}/schedules"
    made = api.request("POST", path, SCHEDULE)
    assert made.ok, made.body
    before = _lasting(api.get(f"{path}/nightly"))

    [upgrade] = PAGE["Upgrade"]
    # The page's own first installation is by the same command as the upgrade.
    assert set(PAGE["Install"][0].splitlines()) < set(upgrade.splitlines())
    said = pageblocks.run(upgrade, variables=variables)
    assert said.count("successfully rolled out") == 2
    versions = {one["metadata"]["labels"]["app.kubernetes.io/version"] for one in _deployments(api)}
    assert versions == {str(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"])}
    assert _lasting(api.get(f"{path}/nightly")) == before

    [uninstall] = PAGE["Uninstall"]
    pageblocks.run(uninstall, variables=variables)
    assert _deployments(api) == []
    assert _lasting(api.get(f"{path}/nightly")) == before
    assert api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/duepoint-blob-key")["data"]


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("prepared")
def test_helm_takes_the_objects_over(api: kubeapi.KubeApi, variables: dict[str, str]) -> None:
    [install] = PAGE["Install"]
    pageblocks.run(install, variables=variables)
    before = {one["metadata"]["uid"] for one in _deployments(api)}
    [change] = PAGE["Change to Helm"]
    pageblocks.run(change, variables=variables)
    try:
        assert {one["metadata"]["uid"] for one in _deployments(api)} == before
        managers = {
            one["metadata"]["labels"]["app.kubernetes.io/managed-by"] for one in _deployments(api)
        }
        assert managers == {"Helm"}
    finally:
        pageblocks.run(f"helm uninstall duepoint -n {NAMESPACE}", variables=variables)
