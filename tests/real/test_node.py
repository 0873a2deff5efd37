"""A node of our own leaves nothing on the host, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.realcluster import until
from tools.devcluster import cluster, processes
from tools.devcluster.state import REPOSITORY, State
from tools.realnode import machine

pytestmark = pytest.mark.skipif(
    os.environ.get("DUEPOINT_TEST_CLUSTER") != "real", reason="it is about a node of our own"
)


def interfaces():
    return sorted(Path("/sys/class/net").iterdir())


@pytest.mark.parametrize("killed", ["nothing", "its first process", "what started it"])
def test_after_down_no_process_mount_interface_or_group_is_left(tmp_path, killed):
    before = interfaces()
    command = [sys.executable, "-m", "tools.realnode", "run", "--", "sleep", "1000"]
    environment = {**os.environ, "DUEPOINT_STATE": str(tmp_path)}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment) as starter:
        [folder] = until("it has begun", lambda: list(tmp_path.glob("run-*/cluster.json")))
        state = State(folder.parent)
        record = until("it says what it starts", state.read)
        first = record.processes[0].pid
        if killed == "nothing":
            until("Pods can run", machine.ready_file(state).exists)
            starter.terminate()
        else:
            os.kill(first if killed == "its first process" else starter.pid, signal.SIGKILL)
        starter.wait()

    cluster.down(state)

    assert processes.marked(state.folder) == []
    assert not any(root.joinpath(machine.group_name(state)).exists() for root in groups())
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert not machine.inner(state).folder.exists()
    assert interfaces() == before


@pytest.fixture(scope="module", autouse=True)
def built():
    """What is missing of its parts takes longer than a test waits."""
    command = [sys.executable, "-m", "tools.realnode", "build"]
    subprocess.run(command, cwd=REPOSITORY, check=True)


def groups():
    return [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
