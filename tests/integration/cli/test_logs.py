"""``duepoint logs``: which logs kubectl is asked for, once and followed."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from duepoint.kube import jobbuilder
from tests.support import background, pagereader, runlogs, scriptedapi
from tests.support.runlogs import ended, running, waiting
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

    def ends(self) -> None:
        self.server.set_job(conditions=runlogs.OVER)

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


# -- once ----------------------------------------------------------------------------------------


def test_each_container_is_asked_of_kubectl_in_the_order_in_which_they_start(cluster):
    cluster.server.set_pod(ended("main"), running("side"), containers=("main", "side"))
    assert shown(cluster.logs()) == ["[pod/p/main] said", "[pod/p/side] said"]
    assert cluster.kubectl.asked()[0] == [
        "logs", "--namespace=shop", "--prefix", "p", "--container=main",
    ]  # fmt: skip


def test_options_and_the_place_are_handed_on(cluster):
    cluster.server.set_pod(ended("main"), containers=("main", "side"))
    place = ("--kubeconfig", str(cluster.config), "--context", "here")
    answer = cluster.logs(
        "-p", "--tail=5", "--since", "1m", "--timestamps", "-c", "main", *place
    )  # fmt: skip
    assert shown(answer) == ["[pod/p/main] said"]
    [asked] = cluster.kubectl.asked()
    assert set(asked) > {
        "--tail=5", "--since=1m", "--timestamps", "--previous", "--context=here",
        f"--kubeconfig={cluster.config}",
    }  # fmt: skip


def test_a_pod_that_is_being_created_is_waited_for_a_little(cluster):
    cluster.server.set_pod(waiting("main"))
    with cluster.start() as process:
        cluster.wait_for_looks(2)
        cluster.server.set_pod(running("main"))
        assert shown(cluster.end_of(process)) == ["[pod/p/main] said"]


def test_an_image_that_cannot_be_pulled_is_not_waited_for(cluster):
    cluster.server.set_pod(waiting("main", "ImagePullBackOff", "no such image"))
    answer = cluster.logs()
    assert (answer.returncode, cluster.server.lists) == (2, 1)
    assert "p/main has not started (ImagePullBackOff: no such image); -f waits" in answer.stderr


def test_a_container_that_will_never_start_is_not_missed(cluster):
    cluster.server.set_pod(
        ended("before", 4), waiting("main"), containers=("before", "main"), phase="Failed"
    )
    assert shown(cluster.logs()) == ["[pod/p/before] said"]


def test_a_log_that_kubectl_cannot_read_is_no_success(cluster):
    cluster.server.set_pod(ended("main"))
    (cluster.kubectl.folder / "p.fails").touch()
    assert cluster.logs().returncode == 2
    cluster.ends()
    assert cluster.logs("-f").returncode == 2


def test_without_a_kubectl_it_is_named(cluster, tmp_path):
    cluster.server.set_pod(ended("main"))
    own = pagereader.BIN / "kubectl"
    with cluster.start(path=str(tmp_path / "empty")) as process:
        answer = cluster.end_of(process)
    if own.exists():  # the one beside the interpreter is taken, and knows no such cluster
        assert answer.returncode == 2
    else:
        assert "kubectl: is not on the PATH" in answer.stderr


def test_a_container_that_no_pod_has_is_named_with_those_there_are(cluster):
    cluster.server.set_pod(running("main"), containers=("main", "proxy"))
    for follow in ((), ("-f",)):
        answer = cluster.logs("-c", "man", *follow)
        assert answer.returncode == 2
        said = '--container: Pod p has no container "man"; write main or proxy'
        assert said in answer.stderr


def test_who_may_not_list_gets_the_servers_own_words(cluster):
    message = 'pods is forbidden: User "ann" cannot list resource "pods"'
    cluster.server.refusals[runlogs.PODS] = scriptedapi.answers(403, {"message": message})
    for follow in ((), ("-f",)):
        assert message in cluster.logs(*follow).stderr


# -- followed ------------------------------------------------------------------------------------


def test_pods_attempts_and_restarts_that_come_later_are_followed_too(cluster):
    server, lasts = cluster.server, cluster.kubectl.folder / "q.lasts"
    server.set_pod(running("main"))
    with cluster.start("-f") as process:
        cluster.wait_for_looks(2)
        server.set_pod(running("main", restarts=1))
        lasts.touch()
        server.set_pod(running("main"), name="q")
        cluster.wait_for_looks(2)
        cluster.ends()
        cluster.wait_for_looks(1)
        assert process.poll() is None  # the container still writes
        lasts.unlink()
        answer = cluster.end_of(process)
    assert sorted(shown(answer)) == ["[pod/p/main] said"] * 2 + ["[pod/q/main] said"]
    assert all("--follow" in asked for asked in cluster.kubectl.asked())


def test_what_is_waited_for_is_said_once(cluster):
    server = cluster.server
    with cluster.start("-f") as process:
        cluster.wait_for_looks(2)
        server.set_pod(waiting("main", "ImagePullBackOff", "Back-off"))
        cluster.wait_for_looks(2)
        server.set_pod(running("main"))
        cluster.wait_for_looks(2)
        cluster.ends()
        answer = cluster.end_of(process)
    assert shown(answer) == ["[pod/p/main] said"]
    assert answer.stderr.splitlines() == [
        "duepoint: waiting for a Pod of Job j",
        "duepoint: waiting for p/main: ImagePullBackOff: Back-off",
    ]


def test_an_api_server_that_is_away_is_waited_for(cluster):
    server = cluster.server
    server.set_pod(running("main"))

    async def away_once(request: web.Request) -> web.StreamResponse:
        del server.refusals[request.path]
        return await scriptedapi.answers(503, {"message": "etcd is away"})(request)

    server.refusals[f"{JOBS}/j"] = away_once
    with cluster.start("-f") as process:
        cluster.wait_for_looks(1)
        cluster.ends()
        answer = cluster.end_of(process)
    assert shown(answer) == ["[pod/p/main] said"]
    assert "the Pods cannot be listed now (" in answer.stderr


def test_very_many_logs_take_turns(cluster):
    names = tuple(f"c{number:02}" for number in range(11))
    cluster.server.set_pod(*map(running, names), containers=names)
    (cluster.kubectl.folder / "p.lasts").touch()
    with cluster.start("-f") as process:
        cluster.wait_for_looks(2)
        (cluster.kubectl.folder / "p.lasts").unlink()
        cluster.ends()
        answer = cluster.end_of(process)
    assert len(shown(answer)) == 11
    assert "10 logs are followed at a time" in answer.stderr


def test_a_run_that_is_over_without_a_pod_leads_to_why(cluster):
    cluster.ends()
    answer = cluster.logs("-f")
    assert (answer.returncode, answer.stdout) == (0, "")
    said = "duepoint: Job j has no Pod: kubectl duepoint why nightly -n shop\n"
    assert answer.stderr == said


def test_a_run_that_outlasts_the_timeout_is_exit_code_3_and_ends_kubectl(cluster):
    cluster.server.set_pod(running("main"))
    (cluster.kubectl.folder / "p.lasts").touch()
    answer = cluster.logs("-f", "--timeout", "3s")
    assert (answer.returncode, answer.stdout) == (3, "[pod/p/main] said\n")
    said = "duepoint: Job j had not ended when the time was over; it goes on\n"
    assert answer.stderr == said


def test_an_interrupt_ends_it_with_the_code_for_it(cluster):
    cluster.server.set_pod(running("main"))
    (cluster.kubectl.folder / "p.lasts").touch()
    with cluster.start("-f") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[pod/p/main] said\n"
        process.send_signal(signal.SIGINT)
        answer = cluster.end_of(process)  # which needs the end of kubectl, too
    assert (answer.returncode, answer.stderr.strip()) == (130, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-f", "--previous"), "--previous: leave it out, or leave --follow out"),
        (("--folow",), "did you mean --follow?"),
    ],
)
def test_what_does_not_fit_is_one_line(refused, words, said):
    assert said in refused("logs", "nightly", *words)


# -- right after duepoint trigger ----------------------------------------------------------------


def test_the_job_that_a_trigger_asked_for_is_waited_for_and_followed(cluster):
    """The Job of the former run exists, and is not what is meant."""
    server = cluster.server
    server.set_run("r", LATER, trigger={})
    polled: list[Any] = []

    async def job_of_the_run(request: web.Request) -> web.StreamResponse:
        polled.append(request.path)
        if len(polled) == 2:
            return await scriptedapi.answers(503, {"message": "etcd is away"})(request)
        if len(polled) < 4:
            return await scriptedapi.answers(404, {"message": "not found"})(request)
        server.set_job(name=OF_THE_RUN, created=LATER, conditions=runlogs.OVER)
        server.set_pod(running("main"))
        del server.refusals[request.path]
        return await server.answer(request)

    server.refusals[f"{JOBS}/{OF_THE_RUN}"] = job_of_the_run
    answer = cluster.logs("-f")
    assert shown(answer) == ["[pod/p/main] said"]
    assert answer.stderr == "duepoint: waiting for the Job of ScheduleRun r\n"


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
    cluster.ends()
    answer = cluster.logs("-f")
    assert shown(answer) == ["[pod/p/main] said"]
    assert answer.stderr == ""


def test_a_trigger_that_ends_without_a_job_is_said(cluster):
    server = cluster.server
    server.set_run("r", LATER, trigger={})
    asked: list[Any] = []

    async def state(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        done = {"status": {"conditions": runlogs.OVER}} if len(asked) == 3 else {}
        return web.json_response(server.runs["r"] | done)

    server.refusals[f"{RUNS}/r"] = state
    answer = cluster.logs("-f")
    assert answer.returncode == 2
    said = "ScheduleRun r ended without a Job: kubectl describe schedulerun r -n shop\n"
    assert answer.stderr.endswith(said)


def test_a_trigger_whose_job_does_not_come_in_time_is_exit_code_3(cluster):
    cluster.server.set_run("r", LATER, trigger={})
    answer = cluster.logs("-f", "--timeout", "2s")
    assert (answer.returncode, answer.stdout) == (3, "")
    said = "duepoint: ScheduleRun r had not ended when the time was over; it goes on\n"
    assert answer.stderr.endswith(said)


def test_who_may_not_list_runs_follows_the_newest_job(cluster):
    server = cluster.server
    server.set_run("r", LATER, trigger={})
    server.refusals[RUNS] = scriptedapi.answers(403, {"message": "scheduleruns is forbidden"})
    server.set_pod(running("main"))
    cluster.ends()
    assert shown(cluster.logs("-f")) == ["[pod/p/main] said"]
