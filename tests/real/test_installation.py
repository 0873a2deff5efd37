"""The chart, the manifests and the overlay of kustomize, installed and taken away as users do."""

from __future__ import annotations

import secrets

import pytest

from tests.support.realcluster import job, schedule, until, webhook
from tools import helm
from tools.realnode import installation
from tools.release import manifests

pytestmark = pytest.mark.alone
NAMESPACE = installation.NAMESPACE
OURS = "app.kubernetes.io/instance=duepoint"


def test_the_chart_with_its_defaults_rolls_out_and_its_own_test_passes(installed):
    said = helm.run(
        "test",
        installation.RELEASE,
        f"--kubeconfig={installed.kubeconfig}",
        f"--namespace={NAMESPACE}",
    )

    assert "Succeeded" in said
    restarts = [
        (pod["metadata"]["name"], status["restartCount"])
        for component in ("operator", "worker", "valkey")
        for pod in installed.pods(component)
        for status in pod["status"]["containerStatuses"]
    ]
    assert len(restarts) >= 5
    assert {count for _, count in restarts} == {0}, restarts


def test_a_namespace_with_running_jobs_and_waiting_retries_can_be_deleted(installed):
    with installed.namespace() as team:
        endless = job("sleep 3600", terminationGracePeriodSeconds=1)
        long = schedule("long", "@every 1s", jobTemplate=endless)
        nowhere = schedule("nowhere", "@every 1s", webhook=webhook("/nothing-listens"))
        installed.apply(long, nowhere, namespace=team)
        until("a container runs", lambda: running(installed, team))

    until("the namespace is gone", lambda: team not in installed("get", "namespaces"))


def running(cluster, namespace):
    selector = "--field-selector=status.phase=Running"
    return cluster.items("pods", f"--namespace={namespace}", selector)


def test_after_an_uninstallation_only_schedules_and_their_kinds_are_left(installed):
    with installed.namespace() as team:
        installed.apply(schedule("kept", "@yearly", jobTemplate=job("true")), namespace=team)
        until(
            "it was looked at", lambda: "status" in installed.get("schedule", "kept", f"-n={team}")
        )

        helm.run(
            *("uninstall", installation.RELEASE, "--wait"),
            *(f"--kubeconfig={installed.kubeconfig}", f"--namespace={NAMESPACE}"),
        )

        until("its Pods are gone", lambda: not installed.items("pods", f"-n={NAMESPACE}"))
        # Another key would let the next installation store every action again.
        assert left_of_the_release(installed) == ["secret/duepoint-blob-key"]
        assert installed.get("schedule", "kept", f"-n={team}")["metadata"].get("finalizers") is None
        installed("delete", "schedule", "kept", f"-n={team}", "--timeout=30s")
    installed("delete", "namespace", NAMESPACE, "--timeout=120s")


def left_of_the_release(cluster):
    """Names of objects of any kind that carry its label, but for the CRDs, which are kept."""
    kinds = cluster("api-resources", "--verbs=list", "--output=name").split()
    looked_at = [kind for kind in kinds if not kind.startswith("customresourcedefinitions")]
    listed = ("--all-namespaces", f"--selector={OURS}", "--output=name", "--ignore-not-found")
    found = cluster("get", ",".join(looked_at), *listed).split()
    # The controllers of the API server delete these with their Pods and Services, a moment later.
    return [name for name in found if "endpoint" not in name]


@pytest.fixture
def redis_address(cluster):
    """A Valkey in a namespace of its own."""
    with cluster.valkey("--protected-mode", "no") as namespace:
        yield f"redis://valkey.{namespace}.svc:6379/0"


@pytest.fixture
def prepared(cluster, redis_address):
    """What has to be there before the manifests are applied."""
    cluster("apply", "--server-side", "-f", str(manifests.CRDS))
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": labels}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
        secret(manifests.REDIS_SECRET, url=redis_address),
        secret(manifests.BLOB_KEY_SECRET, **{"blob-key": secrets.token_hex(16)}),
        namespace=NAMESPACE,
    )
    yield
    cluster("delete", "namespace", NAMESPACE, "--timeout=120s")


def secret(name, **data):
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


@pytest.mark.parametrize("way", ["install.yaml", "kustomize"])
def test_the_manifests_install_and_are_deleted_without_helm(cluster, prepared, tmp_path, way):
    if way == "install.yaml":
        (tmp_path / way).write_text(manifests.install_text())
        named = ["-f", str(tmp_path / way)]
    else:
        named = ["-k", str(manifests.BASE.parent)]
    cluster("apply", "--server-side", *named)
    if options := installation.image_options():
        image = ":".join(option.partition("=")[2].partition("=")[2] for option in options)
        for name in ("operator", "worker"):
            cluster("set", "image", f"deploy/duepoint-{name}", f"*={image}", f"-n={NAMESPACE}")
    cluster.rolled_out("duepoint-operator", "duepoint-worker")
    with cluster.namespace() as team:
        cluster.apply(schedule("first", "@every 2s", jobTemplate=job("true")), namespace=team)
        until("a Job is complete", lambda: succeeded(cluster, team))

        cluster("delete", *named, "--timeout=120s")

        assert left_of_the_release(cluster) == []
        cluster("delete", "schedules.duepoint.dev", "--all", f"-n={team}", "--timeout=30s")


def succeeded(cluster, namespace):
    jobs = cluster.items("jobs", f"--namespace={namespace}")
    return [one for one in jobs if one.get("status", {}).get("succeeded")]
