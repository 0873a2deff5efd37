"""``duepoint logs``: which logs kubectl is asked for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from duepoint.kube import jobbuilder
from tests.support import background, pagereader, runlogs
from tests.support.runlogs import running, waiting
from tests.unit.cli.test_words import write_kubeconfig

FORMER, LATER = "2026-11-28T10:00:00Z", "2026-11-28T10:05:00Z"
OF_THE_RUN = jobbuilder.name_of("nightly", 1_795_860_300_000_000, "uid-r")
RUNS = "/apis/duepoint.dev/v1alpha1/namespaces/shop/scheduleruns"
JOBS = "/apis/batch/v1/namespaces/shop/jobs"


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


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_a_pod_that_is_being_created_is_waited_for(cluster, follow):
    cluster.server.set_pod(waiting("main"), phase="Pending")
    with cluster.start(*follow) as process:
        cluster.wait_for_looks(2)
        cluster.server.set_pod(running("main"))
        assert shown(cluster.end_of(process)) == ["[pod/p/main] said"]


def test_the_newest_pod_is_waited_for_where_a_former_one_has_failed(cluster):
    cluster.server.set_pod(running("main"), name="former", phase="Failed")
    cluster.server.set_pod(waiting("main"), phase="Pending")
    with cluster.start("-f") as process:
        cluster.wait_for_looks(2)
        assert cluster.kubectl.asked() == []
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


def test_a_run_that_is_over_without_a_pod_leads_to_why(cluster):
    cluster.server.set_job(conditions=runlogs.OVER)
    answer = cluster.logs("-f")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.endswith("Job j has no Pod: duepoint why nightly -n shop\n")


# -- right after duepoint trigger ----------------------------------------------------------------


@pytest.mark.parametrize("follow", [(), ("-f",)])
@pytest.mark.parametrize(
    ("created", "trigger"),
    [(LATER, {}), ("2026-11-28T10:07:00Z", {"scheduledTime": LATER})],
    ids=["now", "a slot"],
)
def test_the_job_that_a_trigger_asked_for_is_waited_for(cluster, follow, created, trigger):
    """The Job of the former run exists, and is not what is meant."""
    server = cluster.server
    server.set_run("r", created, trigger=trigger)
    polled: list[str] = []

    async def job_of_the_run(request: web.Request) -> web.StreamResponse:
        polled.append(request.path)
        if len(polled) < 3:
            return web.json_response({}, status=404)
        server.set_job(name=OF_THE_RUN, created=created)
        server.set_pod(running("main"))
        del server.refusals[request.path]
        return await server.answer(request)

    server.refusals[f"{JOBS}/{OF_THE_RUN}"] = job_of_the_run
    answer = cluster.logs(*follow)
    assert shown(answer) == ["[pod/p/main] said"]
    assert answer.stderr == "duepoint: waiting for the Job of ScheduleRun r\n"
    [asked] = cluster.kubectl.asked()
    assert f"--selector=batch.kubernetes.io/job-name={OF_THE_RUN}" in asked


@pytest.mark.parametrize(
    ("created", "spec", "has_ended"),
    [
        ("2026-11-28T09:59:59Z", {"trigger": {}}, False),
        (LATER, {"trigger": {}}, True),
        (LATER, {"trigger": {}, "scheduleName": "another"}, False),
        (LATER, {"backfill": {"from": FORMER, "to": LATER}}, False),
        (LATER, {}, False),
    ],
)
def test_no_other_run_is_waited_for(cluster, created, spec, has_ended):
    server = cluster.server
    server.set_run("r", created, **spec)
    if has_ended:
        server.runs["r"]["status"] = {"conditions": runlogs.OVER}
    server.set_pod(running("main"))
    answer = cluster.logs("-f")
    assert shown(answer) == ["[pod/p/main] said"]
    assert answer.stderr == ""


def test_a_trigger_that_ends_without_a_job_is_said(cluster):
    server = cluster.server
    server.set_run("r", LATER, trigger={})
    asked: list[web.Request] = []

    async def state(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        done = {"status": {"conditions": runlogs.OVER}} if len(asked) == 3 else {}
        return web.json_response(server.runs["r"] | done)

    server.refusals[f"{RUNS}/r"] = state
    answer = cluster.logs("-f")
    assert answer.returncode == 2
    said = "ScheduleRun r ended without a Job: kubectl describe schedulerun r -n shop\n"
    assert answer.stderr.endswith(said)
