"""`make up DETACH=1`: from nothing to the first Job and the first webhook, and what stays of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.devcluster import cluster, processes
from tools.devcluster.state import REPOSITORY, State
from tools.up.kubectl import Kubectl

pytestmark = [pytest.mark.xdist_group("development-cluster"), pytest.mark.timeout(600)]

OF_THE_SHELL = ("KUBECONFIG", "REDIS_URL", "DUEPOINT_TEST_STATE")


@pytest.fixture
def state(tmp_path: Path):
    state = State(tmp_path / "state")
    yield state
    cluster.down(state)


def up(state: State, *options: str) -> subprocess.Popen[str]:
    environment = {name: text for name, text in os.environ.items() if name not in OF_THE_SHELL}
    return subprocess.Popen(
        [sys.executable, "-m", "tools.up", *options],
        cwd=REPOSITORY,
        env=environment | {"DUEPOINT_STATE": str(state.folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_everything_comes_up_a_view_of_it_detaches_and_what_is_stopped_keeps_its_objects(state):
    detached = up(state, "--detach")
    output, _ = detached.communicate()

    assert detached.returncode == 0, output
    assert "First Job: " in output
    assert "First webhook: /hooks/" in output
    assert "NO CONTAINER RUNS" in output

    record = state.read()
    assert record is not None
    assert [one.name for one in record.applications] == ["receiver", "operator", "worker"]
    everything = (*record.processes, *record.applications)
    assert all(map(processes.is_alive, everything))

    # Once more, looking on: without a terminal, a line for each arrival, in whatever order the
    # minute brings them.
    attached = up(state)
    assert attached.stdout is not None
    lines: list[str] = []
    for line in attached.stdout:
        lines.append(line)
        if "  webhook  first-webhook  /hooks/first-webhook" in line:
            break
    else:
        raise AssertionError("".join(lines))
    attached.send_signal(signal.SIGINT)
    rest, _ = attached.communicate()

    assert attached.returncode == 0, rest
    assert "Everything keeps running" in rest
    assert all(map(processes.is_alive, everything))

    kubectl = Kubectl(record.kubeconfig)
    kubectl.run("create", "configmap", "mine", "--namespace=default")
    assert cluster.down(state)
    assert not [one for one in everything if processes.is_alive(one)]

    # A view that has started them itself ends them.
    looking = up(state)
    assert looking.stdout is not None
    for line in looking.stdout:
        if "  webhook  first-webhook  " in line:
            break
    kubectl.run("get", "configmap", "mine", "--namespace=default")
    started = state.read()
    assert started is not None
    looking.send_signal(signal.SIGINT)
    rest, _ = looking.communicate()
    assert looking.returncode == 0, rest
    assert not [
        one for one in (*started.processes, *started.applications) if processes.is_alive(one)
    ]


def test_processes_that_cannot_start_are_told_with_their_last_words(state, monkeypatch):
    monkeypatch.setenv("DUEPOINT_SHARDS", "63")

    failed = up(state, "--detach")
    output, _ = failed.communicate()

    assert failed.returncode == 1
    assert "worker has ended: " in output
    assert "DUEPOINT_SHARDS: 63 is not a power of two" in output
    left = state.read()
    assert left is not None
    assert left.complete, "it is left running for somebody to look at"
