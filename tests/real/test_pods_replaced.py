"""Pods that are replaced beside firing Schedules: an upgrade, a node that is drained."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import history
from tests.support.realcluster import Receiver, until
from tests.support.realfiring import Firing
from tools import helm
from tools.devcluster import external, progress
from tools.devcluster.state import Record, State
from tools.realnode import images, installation, machine, servers

# A second image is built.
pytestmark = [pytest.mark.alone, pytest.mark.timeout(900)]
NAMESPACE = installation.NAMESPACE
COMPONENTS = ("operator", "worker", "api")
FORMER = "docker.io/library/duepoint:former"
#: What an installation is made of.
PRODUCT = ("charts/duepoint", "operator/duepoint", "Dockerfile", "uv.lock")


def install(cluster, *options):
    installation.install(Record(kubeconfig=cluster.kubeconfig), *options)


def names(cluster):
    return {pod["metadata"]["name"] for each in COMPONENTS for pod in cluster.pods(each)}


# -- an upgrade ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def former(tmp_path_factory):
    """The sources before the last change, and their image in the node.

    Chart and image belong together: today's image need not know the settings of an older chart.
    """
    if os.environ.get("DUEPOINT_TEST_CLUSTER") != "real":
        pytest.skip("the image of a former commit is brought to a node of our own only")
    folder = tmp_path_factory.mktemp("former")
    history.extract_former(folder, *PRODUCT, whole=True)
    state = State(Path(os.environ["DUEPOINT_TEST_STATE"]))
    ctr = machine.Parts.read(machine.parts_file(state)).programs["ctr"]
    record = state.read()
    assert record is not None
    machine.run_inside(record, ctr, *servers.IMPORT, str(images.product(folder, FORMER)))
    return folder / "charts" / "duepoint"


def test_an_upgrade_from_the_former_commit_loses_and_doubles_no_slot(cluster, former):
    place = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}")
    helm.run("uninstall", installation.RELEASE, "--ignore-not-found", "--wait", *place)
    cluster("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    repository, _, tag = FORMER.rpartition(":")
    of_former = (f"--set=image.repository={repository}", f"--set-string=image.tag={tag}")
    installation.install(Record(kubeconfig=cluster.kubeconfig), *of_former, chart=former)
    before = names(cluster)
    with cluster.namespace() as team:
        firing = Firing(cluster, team, Receiver(cluster, team))

        install(cluster)
        until("the former Pods are gone", lambda: not before & names(cluster))

        progress.say(f"at most {firing.ended_well():.2f} s late")
    assert not [image for image in used(cluster) if image.endswith(":former")]


def used(cluster):
    return {
        status["image"]
        for each in COMPONENTS
        for pod in cluster.pods(each)
        for status in pod["status"]["containerStatuses"]
    }


# -- a drain ---------------------------------------------------------------------------------------


def test_a_node_is_drained_within_the_budgets_and_no_slot_is_lost_or_doubled(installed):
    budgets = [
        f"--set={each}.podDisruptionBudget.maxUnavailable=1" for each in ("operator", "worker")
    ]
    install(installed, *budgets, "--set=api.enabled=true,api.tls.enabled=false")
    installed.rolled_out("duepoint-api")
    before = names(installed)
    (node,) = {pod["spec"]["nodeName"] for pod in installed.pods("worker")[:1]}
    chosen = f"app.kubernetes.io/component in ({','.join(COMPONENTS)})"
    command = [external.kubectl(), f"--kubeconfig={installed.kubeconfig}", "drain", node]
    command += [f"--pod-selector={chosen}", "--delete-emptydir-data", "--timeout=180s"]
    with installed.namespace() as team:
        firing = Firing(installed, team, Receiver(installed, team))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as drain:
            try:
                until("it is closed", lambda: installed.get("node", node)["spec"]["unschedulable"])
                # Where there is no other node the replacements come here.
                installed("uncordon", node)
                said, _ = drain.communicate()
            finally:
                installed("uncordon", node)

        assert drain.returncode == 0, said
        progress.say(f"at most {firing.ended_well():.2f} s late")
    until("all were replaced", lambda: not before & names(installed))
