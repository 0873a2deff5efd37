"""``duepoint logs``: once and followed, on a server that speaks as an API server does of logs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from duepoint.cli.schedules import logs, podlogs, runpods, triggered
from duepoint.kube import jobbuilder
from tests.support import background, pagereader, runlogs, scriptedapi
from tests.support.runlogs import ended, line, running, waiting
from tests.unit.cli.test_words import write_kubeconfig

JOBS = "/apis/batch/v1/namespaces/shop/jobs"
PODS = "/api/v1/namespaces/shop/pods"


class Cluster:
    """The server, in a loop of its own."""

    def __init__(self, server: runlogs.RunServer, run: Callable[[Any], Any]) -> None:
        self.server = server
        self.run = run

    def logs(self, *script: scriptedapi.Handler, pod: str = "p", container: str = "main") -> None:
        self.server.logs[pod, container] = list(script)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster with a Job that is under way; the kubeconfig of the environment names it."""
    monkeypatch.setattr(podlogs, "_REOPEN_SECONDS", (0.01, 0.05))
    with background.living(runlogs.serving) as (server, run):
        run(server.set_job())
        write_kubeconfig(tmp_path / "config", server.url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield Cluster(server, run)


def then(*steps: Callable[[], Any]) -> scriptedapi.Handler:
    """Inside an answer: what becomes of the cluster meanwhile."""

    async def handler(_request: web.Request) -> web.StreamResponse:
        for step in steps:
            await step()
        return web.Response()

    return handler


def ends(server: runlogs.RunServer, pod: str = "p") -> scriptedapi.Handler:
    """The container ends, and so does the run."""
    return then(
        lambda: server.set_pod(ended("main"), name=pod, phase="Succeeded"),
        lambda: server.set_job(conditions=runlogs.OVER),
    )


def cut_after(*chunks: bytes) -> scriptedapi.Handler:
    return scriptedapi.streams(*chunks, then=scriptedapi.hangs_up)


# -- once ----------------------------------------------------------------------------------------


def test_the_log_is_printed_as_it_is_with_tabs_and_colours(duepoint, cluster):
    cluster.run(cluster.server.set_pod(ended("main"), phase="Succeeded"))
    cluster.logs(
        scriptedapi.streams(line(1, "a\tb"), line(2, "\x1b[31mred\x1b[0m"), line(3, "\x1b]0;t\x07"))
    )
    answer = duepoint("logs", "nightly")
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "[p/main] a\tb",
        "[p/main] \x1b[31mred\x1b[0m",
        "[p/main] \\x1b]0;t\\x07",
    ]


def test_options_reach_the_server_as_kubectl_sends_them(duepoint, cluster):
    cluster.run(cluster.server.set_pod(ended("main"), phase="Succeeded"))
    cluster.logs(scriptedapi.streams(line(1, "a")))
    answer = duepoint(
        "logs", "nightly", "-p", "--tail=5", "--since", "1m500ms", "--timestamps", "-c", "main"
    )
    assert answer.out == "[p/main] 2026-11-28T10:00:01.000000000Z a\n"
    assert cluster.server.asked == [
        {
            "pod": "p", "container": "main", "timestamps": "true", "previous": "true",
            "tailLines": "5", "sinceSeconds": "61",
        }
    ]  # fmt: skip


@pytest.mark.parametrize(("tail", "asked"), [("-1", None), ("0", "0")])
def test_tail_is_what_kubectl_means_by_it(duepoint, cluster, tail, asked):
    cluster.run(cluster.server.set_pod(ended("main"), phase="Succeeded"))
    cluster.logs(scriptedapi.streams())
    assert duepoint("logs", "nightly", "--tail", tail, "--since=0").code == 0
    assert cluster.server.asked[0].get("tailLines") == asked
    assert "sinceSeconds" not in cluster.server.asked[0]


def test_a_log_that_is_cut_goes_on_after_the_last_line(duepoint, cluster):
    cluster.run(cluster.server.set_pod(ended("main"), phase="Succeeded"))
    cluster.logs(
        cut_after(line(1, "a"), line(2, "b"), line(2, "half")[:-3]),
        scriptedapi.streams(line(2, "b"), line(2, "half"), line(3, "c")[:-1]),
    )
    answer = duepoint("logs", "nightly", "--tail=9")
    assert answer.code == 0
    assert answer.out.splitlines() == ["[p/main] a", "[p/main] b", "[p/main] half", "[p/main] c"]
    assert cluster.server.asked[1]["sinceTime"] == "2026-11-28T10:00:02Z"
    assert "tailLines" not in cluster.server.asked[1]


def test_a_pod_that_is_being_created_is_waited_for_a_little(duepoint, cluster):
    server = cluster.server

    async def still_creating(_request: web.Request) -> web.StreamResponse:
        """The first list; the container starts right after it."""
        del server.refusals[PODS]
        before = web.json_response({"items": list(server.pods.values()), "metadata": {}})
        await server.set_pod(running("main"))
        return before

    cluster.run(server.set_pod(waiting("main"), phase="Pending"))
    server.refusals[PODS] = still_creating
    cluster.logs(scriptedapi.streams(line(1, "a")))
    answer = duepoint("logs", "nightly")
    assert (answer.code, answer.out) == (0, "[p/main] a\n")


def test_a_container_that_does_not_start_in_time_leads_to_follow(duepoint, cluster, monkeypatch):
    monkeypatch.setattr(logs, "_STARTS_WITHIN_SECONDS", 0.0)
    cluster.run(cluster.server.set_pod(waiting("main"), phase="Pending"))
    cluster.logs(runlogs.refused("main"))
    answer = duepoint("logs", "nightly")
    assert answer.code == 2
    assert "is waiting to start: ContainerCreating; -f waits for it" in answer.err


def test_an_image_that_cannot_be_pulled_is_not_waited_for(duepoint, cluster):
    cluster.run(cluster.server.set_pod(waiting("main", "ImagePullBackOff"), phase="Pending"))
    cluster.logs(runlogs.refused("main"))
    began = time.monotonic()
    assert duepoint("logs", "nightly").code == 2
    assert time.monotonic() - began < logs._STARTS_WITHIN_SECONDS


def test_a_log_that_is_cut_for_good_is_no_success(duepoint, cluster):
    cluster.run(cluster.server.set_pod(ended("main"), phase="Succeeded"))
    cluster.logs(cut_after(line(1, "a")), cut_after(line(1, "a")))
    answer = duepoint("logs", "nightly")
    assert (answer.code, answer.out) == (2, "[p/main] a\n")
    assert answer.err.startswith("duepoint: p/main: GET /api/v1/namespaces/shop/pods/p/log: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-f", "--previous"), "--previous: leave it out, or leave --follow out"),
        (("-c", "a", "--all-containers"), "--all-containers: leave it out, or leave --container"),
        (("--tail", "x"), '--tail: "x": write a whole number from 0 to 1000000'),
        (("--tail", "-2"), '--tail: "-2": write a whole number from 0 to 1000000'),
        (("--since", "10"), "--since: "),
        (("--folow",), "did you mean --follow?"),
        (("--timestamp",), "did you mean --timestamps?"),
    ],
)
def test_what_does_not_fit_is_one_line(refused, words, said):
    assert said in refused("logs", "nightly", *words)


def test_a_container_that_no_pod_has_is_named_with_those_there_are(refused, cluster):
    cluster.run(cluster.server.set_pod(running("main"), containers=("main", "proxy")))
    for follow in ((), ("-f",)):
        message = refused("logs", "nightly", "-c", "man", *follow)
        assert '--container: Pod p has no container "man"; write main or proxy' in message


# -- followed ------------------------------------------------------------------------------------


def test_a_log_is_followed_until_the_run_is_over(duepoint, cluster):
    server = cluster.server
    cluster.run(server.set_pod(running("main")))
    cluster.logs(
        scriptedapi.streams(line(1, "a"), line(2, "b"), then=ends(server)),
        scriptedapi.streams(line(2, "b"), line(2, "last")),
    )
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == ["[p/main] a", "[p/main] b", "[p/main] last"]
    assert server.asked[0]["follow"] == "true"


def test_a_container_that_has_not_started_is_waited_for_by_name(duepoint, cluster):
    server = cluster.server
    why = waiting("main", "ImagePullBackOff", "Back-off pulling image")
    cluster.run(server.set_pod(why, phase="Pending"))

    async def starts(request: web.Request) -> web.StreamResponse:
        await server.set_pod(running("main"))
        return await runlogs.refused("main")(request)

    cluster.logs(starts, scriptedapi.streams(line(1, "a"), then=ends(server)))
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (0, "[p/main] a\n")
    said = "duepoint: p/main: waiting for the container: ImagePullBackOff: Back-off pulling image\n"
    assert answer.err == said


def test_a_pod_that_does_not_exist_yet_is_waited_for(duepoint, cluster):
    server = cluster.server
    are_both_listed = asyncio.Event()

    async def watch_job(request: web.Request) -> web.StreamResponse:
        del server.refusals[f"{JOBS}?watch"]
        are_both_listed.set()
        return await server.answer(request)

    async def watch_pods(request: web.Request) -> web.StreamResponse:
        del server.refusals[f"{PODS}?watch"]
        # A Pod that came before the Job was listed would need no waiting.
        await are_both_listed.wait()
        await server.set_pod(running("main"))
        return await server.answer(request)

    server.refusals |= {f"{JOBS}?watch": watch_job, f"{PODS}?watch": watch_pods}
    cluster.logs(scriptedapi.streams(line(1, "a"), then=ends(server)))
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (0, "[p/main] a\n")
    assert answer.err == "duepoint: waiting for a Pod of Job j\n"


def test_the_pod_of_the_next_attempt_is_followed_too(duepoint, cluster):
    server = cluster.server
    cluster.run(server.set_pod(running("main")))
    retry = then(
        lambda: server.set_pod(ended("main", 1), phase="Failed"),
        lambda: server.set_pod(running("main"), name="q"),
    )
    cluster.logs(scriptedapi.streams(line(1, "a"), then=retry), scriptedapi.streams(line(1, "a")))
    cluster.logs(scriptedapi.streams(line(9, "b"), then=ends(server, "q")), pod="q")
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (0, "[p/main] a\n[q/main] b\n")


def test_a_container_that_starts_again_is_followed_on(duepoint, cluster):
    server = cluster.server
    cluster.run(server.set_pod(running("main"), restart_policy="OnFailure"))
    fails = then(lambda: server.set_pod(ended("main", 1), restart_policy="OnFailure"))
    cluster.logs(
        scriptedapi.streams(line(1, "a"), then=fails),
        runlogs.refused("main"),
        scriptedapi.streams(line(20, "again"), then=ends(server)),
    )
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (0, "[p/main] a\n[p/main] again\n")


def test_a_followed_log_that_is_cut_or_silent_goes_on(duepoint, cluster, monkeypatch):
    monkeypatch.setattr(podlogs, "_SILENCE_SECONDS", 0.2)
    server = cluster.server
    cluster.run(server.set_pod(running("main")))
    cluster.logs(
        cut_after(line(1, "a"), line(2, "b")[:-4]),
        scriptedapi.streams(line(1, "a"), line(2, "b"), then=scriptedapi.hangs),
        scriptedapi.answers(502, {"message": "dial tcp 10.0.0.1:10250: connection refused"}),
        scriptedapi.streams(line(2, "b"), line(3, "c"), then=ends(server)),
        scriptedapi.streams(line(3, "c")),
    )
    answer = duepoint("logs", "nightly", "-f")
    assert answer.code == 0
    assert answer.out.splitlines() == ["[p/main] a", "[p/main] b", "[p/main] c"]
    assert answer.err.count("\n") == 1
    assert "the log cannot be read now (" in answer.err
    assert "connection refused); trying again" in answer.err


def test_only_new_lines_are_only_what_came_since(duepoint, cluster, monkeypatch):
    """With nothing shown there is no time to resume from, and old lines must not appear."""
    server = cluster.server
    cluster.run(server.set_pod(running("main")))
    cluster.logs(
        scriptedapi.streams(),
        scriptedapi.streams(line(3, "new"), then=ends(server)),
        scriptedapi.streams(line(3, "new")),
    )
    answer = duepoint("logs", "nightly", "-f", "--tail", "0")
    assert (answer.code, answer.out) == (0, "[p/main] new\n")
    first, second, *_ = server.asked
    assert first["tailLines"] == "0"
    assert "tailLines" not in second
    assert 1 <= int(second["sinceSeconds"]) <= 60


def test_a_run_that_is_over_is_printed_and_left(duepoint, cluster):
    server = cluster.server
    cluster.run(server.set_pod(ended("main"), phase="Succeeded"))
    cluster.run(server.set_job(conditions=runlogs.OVER))
    cluster.logs(scriptedapi.streams(line(1, "a")))
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out, answer.err) == (0, "[p/main] a\n", "")


def test_a_run_that_is_over_without_a_pod_leads_to_why(duepoint, cluster):
    cluster.run(cluster.server.set_job(conditions=runlogs.OVER))
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "duepoint: Job j has no Pod: kubectl duepoint why nightly -n shop\n"


def test_a_pod_that_is_deleted_ends_its_log(duepoint, cluster):
    server = cluster.server
    cluster.run(server.set_pod(running("main")))
    gone = then(server.delete_pod, server.delete_job)
    cluster.logs(scriptedapi.streams(line(1, "a"), then=gone))
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (0, "[p/main] a\n")
    assert answer.err == "duepoint: p/main: the Pod was deleted, and its log with it\n"


def test_a_log_that_may_not_be_read_is_no_success(duepoint, cluster):
    server = cluster.server
    cluster.run(server.set_pod(running("main")))
    message = 'pods "p" is forbidden: User "ann" cannot get resource "pods/log"'

    async def forbidden(request: web.Request) -> web.StreamResponse:
        await ends(server)(request)
        return await scriptedapi.answers(403, {"message": message})(request)

    cluster.logs(forbidden)
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert len(server.asked) == 1


def test_who_may_list_and_not_watch_follows_too(duepoint, cluster, monkeypatch):
    monkeypatch.setattr(runpods, "_POLL_SECONDS", 0.01)
    server = cluster.server
    message = 'pods is forbidden: User "ann" cannot watch resource "pods"'
    forbidden = scriptedapi.answers(403, {"message": message})
    server.refusals = {f"{PODS}?watch": forbidden, f"{JOBS}?watch": forbidden}
    cluster.run(server.set_pod(running("main")))
    cluster.logs(
        scriptedapi.streams(line(1, "a"), then=ends(server)), scriptedapi.streams(line(1, "a"))
    )
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out, answer.err) == (0, "[p/main] a\n", "")


def test_who_may_not_list_gets_the_servers_own_words(refused, cluster):
    message = 'pods is forbidden: User "ann" cannot list resource "pods"'
    cluster.server.refusals[PODS] = scriptedapi.answers(403, {"message": message})
    for follow in ((), ("-f",)):
        assert message in refused("logs", "nightly", *follow)


def test_a_run_that_outlasts_the_timeout_is_exit_code_3(duepoint, cluster):
    cluster.run(cluster.server.set_pod(running("main")))
    cluster.logs(scriptedapi.streams(line(1, "a"), then=scriptedapi.hangs))
    answer = duepoint("logs", "nightly", "-f", "--timeout", "1s")
    assert (answer.code, answer.out) == (3, "[p/main] a\n")
    assert answer.err == "duepoint: Job j had not ended when the time was over; it goes on\n"


def test_more_containers_than_are_followed_at_a_time_take_turns(duepoint, cluster, monkeypatch):
    monkeypatch.setattr(podlogs, "MOST_AT_ONCE", 2)
    server = cluster.server
    names = ("a", "b", "c")
    done = [ended(each) for each in names]
    cluster.run(server.set_pod(*done, phase="Succeeded", containers=names))
    cluster.run(server.set_job(conditions=runlogs.OVER))
    for each in names:
        cluster.logs(scriptedapi.streams(line(1, each)), container=each)
    answer = duepoint("logs", "nightly", "-f", "--all-containers=true")
    assert sorted(answer.out.splitlines()) == [f"[p/{each}] {each}" for each in names]
    assert "3 containers write; 2 are followed at a time" in answer.err


@pytest.fixture
def process(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has shown the first line of a log without an end."""
    cluster.run(cluster.server.set_pod(running("main")))
    many = [line(1, "x" * 1000) for _ in range(5000)]
    cluster.logs(scriptedapi.streams(line(0, "a"), *many, then=scriptedapi.hangs))
    with subprocess.Popen(
        [pagereader.BIN / "duepoint", "logs", "nightly", "-f"],
        env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as started:  # fmt: skip
        assert started.stdout is not None
        assert started.stdout.readline() == b"[p/main] a\n"
        yield started
        started.kill()


def test_an_interrupt_ends_it_with_the_code_for_it(process):
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, b"")


def test_a_reader_that_has_enough_ends_it_quietly(process):
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""


# -- right after duepoint trigger ----------------------------------------------------------------

FORMER, LATER = "2026-11-28T10:00:00Z", "2026-11-28T10:05:00Z"
OF_THE_RUN = jobbuilder.name_of("nightly", 1_795_860_300_000_000, "uid-r")


def test_the_job_that_a_trigger_asked_for_is_waited_for_and_followed(duepoint, cluster):
    """The Job of the former run exists, and is not what is meant."""
    server = cluster.server
    server.set_run("r", LATER, trigger={})
    polled = []

    async def job_of_the_run(request: web.Request) -> web.StreamResponse:
        polled.append(request.path)
        if len(polled) == 3:
            await server.set_job(name=OF_THE_RUN, created=LATER)
            await server.set_pod(running("main"))
        if len(polled) == 2:
            return await scriptedapi.answers(503, {"message": "etcd is away"})(request)
        del server.refusals[request.path]
        answer = await server.answer(request)
        if len(polled) < 3:
            server.refusals[request.path] = job_of_the_run
        return answer

    server.refusals[f"{JOBS}/{OF_THE_RUN}"] = job_of_the_run
    cluster.logs(scriptedapi.streams(line(1, "a"), then=ends(server)))
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out) == (0, "[p/main] a\n")
    assert answer.err == "duepoint: waiting for the Job of ScheduleRun r\n"


@pytest.mark.parametrize(
    ("created", "spec", "ended"),
    [
        ("2026-11-28T09:59:59Z", {"trigger": {}}, False),
        (LATER, {"trigger": {}}, True),
        (LATER, {"trigger": {}, "scheduleName": "another"}, False),
        (LATER, {"backfill": {"from": FORMER, "to": LATER}}, False),
        (LATER, {}, False),
    ],
)
def test_no_other_run_is_waited_for(duepoint, cluster, created, spec, ended):
    server = cluster.server
    server.set_run("r", created, **spec)
    if ended:
        server.runs["r"]["status"] = {"conditions": runlogs.OVER}
    cluster.run(server.set_pod(running("main")))
    cluster.logs(scriptedapi.streams(line(1, "a"), then=ends(server)))
    answer = duepoint("logs", "nightly", "-f")
    assert (answer.code, answer.out, answer.err) == (0, "[p/main] a\n", "")


def test_a_trigger_that_ends_without_a_job_is_said(duepoint, cluster, monkeypatch):
    monkeypatch.setattr(triggered, "_AGAIN_SECONDS", 0.01)
    server = cluster.server
    server.set_run("r", LATER, trigger={})
    asked = []

    async def state(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        done = {"status": {"conditions": runlogs.OVER}} if len(asked) == 3 else {}
        return web.json_response(server.runs["r"] | done)

    server.refusals["/apis/duepoint.dev/v1alpha1/namespaces/shop/scheduleruns/r"] = state
    answer = duepoint("logs", "nightly", "-f")
    assert answer.code == 2
    said = "ScheduleRun r ended without a Job: kubectl describe schedulerun r -n shop\n"
    assert answer.err.endswith(said)


def test_a_trigger_whose_job_does_not_come_in_time_is_exit_code_3(duepoint, cluster):
    cluster.server.set_run("r", LATER, trigger={})
    answer = duepoint("logs", "nightly", "-f", "--timeout", "1s")
    assert (answer.code, answer.out) == (3, "")
    said = "duepoint: ScheduleRun r had not ended when the time was over; it goes on\n"
    assert answer.err.endswith(said)


def test_who_may_not_list_runs_follows_the_newest_job(duepoint, cluster):
    server = cluster.server
    server.set_run("r", LATER, trigger={})
    forbidden = scriptedapi.answers(403, {"message": "scheduleruns is forbidden"})
    server.refusals["/apis/duepoint.dev/v1alpha1/namespaces/shop/scheduleruns"] = forbidden
    cluster.run(server.set_pod(running("main")))
    cluster.logs(scriptedapi.streams(line(1, "a"), then=ends(server)))
    assert duepoint("logs", "nightly", "-f").out == "[p/main] a\n"
