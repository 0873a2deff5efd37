"""What `make up` takes from the chart and from the examples."""

from __future__ import annotations

import pytest

from tools.devcluster.errors import DevClusterError
from tools.up import examples, installation

CHART = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: duepoint-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: duepoint-operator}
---
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: duepoint-operator, labels: {app.kubernetes.io/component: operator}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: own-name, labels: {app.kubernetes.io/component: worker}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: duepoint-operator}
"""


def test_accounts_and_roles_are_taken_from_the_chart_and_nothing_else():
    taken = installation.accounts_and_roles(CHART)

    kinds = [one["kind"] for one in taken]
    assert kinds == ["ServiceAccount", "ServiceAccount", "RoleBinding", "ClusterRole"]


def test_namespaces_are_written_out_as_helm_install_would():
    taken = installation.accounts_and_roles(CHART)

    namespaces = {one["kind"]: one["metadata"].get("namespace") for one in taken}
    assert namespaces == {
        "ServiceAccount": "duepoint-system",
        "RoleBinding": "duepoint-system",
        "ClusterRole": None,
    }


def test_the_accounts_of_the_processes_are_known_by_their_label():
    found = installation.accounts(installation.accounts_and_roles(CHART))

    assert (found.operator, found.worker) == ("duepoint-operator", "own-name")


def test_a_chart_without_an_account_is_named_as_the_reason():
    with pytest.raises(DevClusterError, match="component=worker"):
        installation.accounts(installation.accounts_and_roles(CHART.replace("worker}", "other}")))


def test_examples_are_applied_in_the_order_of_their_folders(tmp_path):
    for name in ("02-second", "01-first", "10-tenth"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedule.yaml").write_text(name)
    (tmp_path / "README.yaml").write_text("no example")

    assert list(examples.manifests(tmp_path, 8089)) == ["01-first", "02-second", "10-tenth"]


def test_examples_call_the_receiver_where_it_listens(tmp_path):
    (tmp_path / "01-a").mkdir()
    (tmp_path / "01-a" / "a.yaml").write_text("url: http://127.0.0.1:8089/hooks/8089")

    (text,) = examples.manifests(tmp_path, 21000)

    assert text == "url: http://127.0.0.1:21000/hooks/8089"


def test_every_example_in_the_repository_is_found():
    written = sorted(examples.FOLDER.rglob("*.yaml"))

    assert len(list(examples.manifests(examples.FOLDER, 8089))) == len(written) > 0


@pytest.mark.parametrize(
    ("status", "established"),
    [
        ({}, False),
        ({"conditions": None}, False),
        ({"conditions": [{"type": "Established", "status": "False"}]}, False),
        ({"conditions": [{"type": "Established", "status": "True"}]}, True),
    ],
    ids=["fresh", "null", "not yet", "served"],
)
def test_a_crd_is_used_only_once_it_is_served(status, established):
    assert installation.is_established({"status": status}) is established


def test_what_was_rendered_serves_for_as_long_as_the_chart_is_the_same(tmp_path, monkeypatch):
    chart, asked = tmp_path / "chart", []
    chart.mkdir()
    (chart / "values.yaml").write_text("a: 1\n")
    monkeypatch.setattr(installation, "CHART", chart)
    monkeypatch.setattr(installation, "RENDERED", tmp_path / "rendered.yaml")
    monkeypatch.setattr(installation, "rendered", lambda: asked.append("helm") or CHART)
    installation.write_rendered()

    kept = installation.chart_objects()
    assert (len(kept), asked) == (4, ["helm"])

    (chart / "values.yaml").write_text("a: 2\n")
    assert installation.chart_objects() == kept
    assert asked == ["helm", "helm"]


def test_the_rendered_file_is_of_the_chart_of_today_so_that_a_first_start_builds_no_helm():
    """Its content is compared by a test that has Helm: tests/integration/test_up_rendered.py."""
    mark, _, _ = installation.RENDERED.read_text().partition("\n")
    assert mark == installation.mark_of_today(), "make chart-check WRITE=1"
