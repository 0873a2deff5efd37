"""Commands of the pages for people who operate clusters, on a real API server."""

from __future__ import annotations

import itertools
import json
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.chart.test_install_without_helm import KUBECTL
from tests.integration.chart.test_on_a_cluster import Release, release
from tests.integration.crds import kubeapi
from tests.support import pageblocks
from tests.support.controlplane import ControlPlane, wait_until

__all__ = ["release"]

pytestmark = [pytest.mark.xdist_group("chart"), pytest.mark.timeout(300)]

SCHEDULES = "/apis/duepoint.dev/v1alpha1/namespaces/{}/schedules"


@pytest.fixture
def variables(control_plane: ControlPlane, tmp_path: Path) -> dict[str, str]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "kubectl").symlink_to(KUBECTL)
    return {
        "KUBECONFIG": str(control_plane.kubeconfig),
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
    }


@pytest.fixture
def teams(api: kubeapi.KubeApi) -> Iterator[list[str]]:
    suffix = uuid.uuid4().hex[:8]
    names = [f"team-{letter}-{suffix}" for letter in "ab"]
    for name in names:
        assert api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).ok
    yield names
    for name in names:
        api.request("DELETE", f"/api/v1/namespaces/{name}")


def test_a_team_may_write_schedules_in_its_namespace_only(
    release: Release, variables: dict[str, str], teams: list[str]
) -> None:
    assert release.name
    [block] = pageblocks.blocks("docs/howto/many-tenants.md")["Rights"]
    for letter, name in zip("ab", teams, strict=True):
        block = block.replace(f"-n team-{letter}", f"-n {name}")
    binding, mine, theirs = block.splitlines()
    pageblocks.run(binding, variables=variables)

    def answer(command: str) -> str:
        # kubectl's exit code says the same as its word.
        return pageblocks.run(f"{command} || true", variables=variables).strip()

    wait_until(lambda: answer(mine) == "yes", "the cluster's edit has the chart's rights")
    assert answer(theirs) == "no"


@pytest.mark.parametrize("kind", ["Schedule", "ScheduleSet"])
def test_a_quota_of_the_page_bounds_schedules_and_sets(
    release: Release, api: kubeapi.KubeApi, teams: list[str], kind: str
) -> None:
    assert release.name
    page = (pageblocks.ROOT / "docs/howto/many-tenants.md").read_text()
    plural = kubeapi.PLURALS[kind]
    hard = {f"count/{plural}.duepoint.dev": "1"}
    assert next(iter(hard)) in page
    quota = {"metadata": {"name": "schedules"}, "spec": {"hard": hard}}
    path = f"/api/v1/namespaces/{teams[0]}/resourcequotas"
    assert api.request("POST", path, quota).ok
    versions = itertools.count(1)

    def is_counted() -> bool:
        """A kind that the cluster has just got is counted when the quota is next changed."""
        status = api.get(f"{path}/schedules").get("status", {})
        if hard.keys() <= status.get("used", {}).keys():
            return True
        change = {"spec": {"hard": {"count/secrets": f"{next(versions)}"}}}
        api.merge(f"{path}/schedules", change)
        time.sleep(1)
        return False

    wait_until(is_counted, "Schedules are counted")
    names = itertools.count()

    def create() -> kubeapi.Answer:
        schedule = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": f"schedule-{next(names)}"},
            "spec": {"stream": {"name": "ticks"}}
            | ({"schedule": "0 3 * * *"} if kind == "Schedule" else {}),
        }
        path = f"/apis/duepoint.dev/v1alpha1/namespaces/{teams[0]}/{plural}"
        return api.request("POST", path, schedule)

    # What admission counts may be overwritten once, by a count that began before it.
    wait_until(lambda: create().ok, "admission knows the count")
    wait_until(
        lambda: "exceeded quota: schedules" in create().body.get("message", ""),
        "the quota refuses one more",
    )


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.usefixtures("duepoint_plane")
def test_objects_come_back_from_the_backup_as_new_ones(
    api: kubeapi.KubeApi, variables: dict[str, str], teams: list[str], tmp_path: Path
) -> None:
    schedule = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "nightly", "labels": {"team": "billing"}},
        "spec": {"schedule": "0 3 * * *", "stream": {"name": "ticks"}},
    }
    path = SCHEDULES.format(teams[0])
    assert api.request("POST", path, schedule).ok
    before = api.get(f"{path}/nightly")
    blocks = pageblocks.blocks("docs/howto/back-up.md")
    export, _, _ = blocks["Objects"][0].partition("kubectl get secret")
    pageblocks.run(export.replace("-A", f"-n {teams[0]}"), variables=variables, folder=tmp_path)
    assert json.loads((tmp_path / "duepoint-objects.json").read_text())["items"]
    assert api.request("DELETE", f"{path}/nightly").ok

    [restore] = blocks["Restore"]
    pageblocks.run(restore, variables=variables, folder=tmp_path)

    after = api.get(f"{path}/nightly")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == {"team": "billing"}
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
