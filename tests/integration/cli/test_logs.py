"""``duepoint logs``: which logs kubectl is asked for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import background, pagereader, runlogs, scriptedapi
from tests.support.runlogs import running, waiting
from tests.unit.cli.test_words import write_kubeconfig


class Cluster:
    """The server with a Job that is under way, a kubectl, and the command as a process."""

    def __init__(self, server: runlogs.RunServer, folder: Path) -> None:
        self.server = server
        self.kubectl = runlogs.Kubectl(folder)
        self.config = folder / "config"
        write_kubeconfig(self.config, server.url)

    def start(self, *words: str, path: str = "") -> subprocess.Popen[str]:
        folder = str(self.kubectl.folder)
        return subprocess.Popen(
            [pagereader.BIN / "duepoint", "logs", "nightly", *words],
            env={"HOME": folder, "KUBECONFIG": str(self.config), "PATH": path or folder},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def logs(self, *words: str) -> subprocess.CompletedProcess[str]:
        with self.start(*words) as process:
            return self.end_of(process)

    def end_of(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def wait_for_looks(self, more: int) -> None:
        """Until the Pods were listed so often again."""
        until, deadline = self.server.lists + more, time.monotonic() + 60
        while self.server.lists < until:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with background.living(runlogs.serving) as (server, _run):
        server.set_job()
        yield Cluster(server, tmp_path)


def shown(answer: subprocess.CompletedProcess[str]) -> list[str]:
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def test_the_pods_of_the_newest_job_are_asked_of_kubectl(cluster):
    cluster.server.set_pod(running("main"))
    assert shown(cluster.logs()) == ["[pod/p/main] said"]
    assert cluster.kubectl.asked() == [[
        "logs", "--namespace=shop", "--prefix", "--selector=batch.kubernetes.io/job-name=j",
        "--tail=-1", "--max-log-requests=100", "--all-containers",
    ]]  # fmt: skip


def test_options_and_the_place_are_handed_on(cluster):
    cluster.server.set_pod(running("main"))
    place = ("--kubeconfig", str(cluster.config), "--context", "here")
    assert shown(cluster.logs("-p", "--tail=5", "--since", "1m", "-c", "main", "-f", *place))
    [asked] = cluster.kubectl.asked()
    assert asked[-6:] == ["-p", "--tail=5", "--since", "1m", "-c", "main"]
    assert {"--follow", "--context=here", f"--kubeconfig={cluster.config}"} < set(asked)
    assert "--all-containers" not in asked


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_a_pod_that_is_being_created_is_waited_for(cluster, follow):
    cluster.server.set_pod(waiting("main"), phase="Pending")
    with cluster.start(*follow) as process:
        cluster.wait_for_looks(2)
        cluster.server.set_pod(running("main"))
        assert shown(cluster.end_of(process)) == ["[pod/p/main] said"]


def test_an_image_that_cannot_be_pulled_is_not_waited_for(cluster):
    cluster.server.set_pod(waiting("main", "ImagePullBackOff", "no such image"), phase="Pending")
    assert shown(cluster.logs("-f"))  # kubectl says why there is none
    assert cluster.server.lists == 1


def test_a_log_that_kubectl_cannot_read_is_no_success(cluster):
    cluster.server.set_pod(running("main"))
    (cluster.kubectl.folder / "fails").touch()
    assert cluster.logs().returncode == 2


def test_without_a_kubectl_it_is_named(cluster, tmp_path):
    cluster.server.set_pod(running("main"))
    own = pagereader.BIN / "kubectl"
    with cluster.start(path=str(tmp_path / "empty")) as process:
        answer = cluster.end_of(process)
    if own.exists():  # the one beside the interpreter is taken, and knows no such cluster
        assert answer.returncode == 2
    else:
        assert "kubectl: is not on the PATH" in answer.stderr


def test_who_may_not_list_gets_the_servers_own_words(cluster):
    message = 'pods is forbidden: User "ann" cannot list resource "pods"'
    cluster.server.refusals[runlogs.PODS] = scriptedapi.answers(403, {"message": message})
    assert message in cluster.logs().stderr


def test_a_run_that_is_over_without_a_pod_leads_to_why(cluster):
    cluster.server.set_job(conditions=runlogs.OVER)
    answer = cluster.logs("-f")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.endswith("Job j has no Pod: duepoint why nightly -n shop\n")
