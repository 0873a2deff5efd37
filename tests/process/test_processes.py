"""Processes are recognised for what they are, and ended together with their children."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.waiting import wait_until
from tools.devcluster import cluster, processes, session
from tools.devcluster.processes import Program
from tools.devcluster.state import Record, Running, State


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path / "state")
    state.prepare()
    yield state
    cluster.end(state)


def a_sleeper(state: State, script: str = "exec sleep 60") -> Running:
    program = Program(name="sleeper", command=("sh", "-c", script))
    return processes.start(program, state.logs / "sleeper.log", state.folder)


def test_children_end_with_their_parent(state):
    running = a_sleeper(state, "sleep 60 & echo $!; wait")
    log = state.logs / "sleeper.log"
    wait_until(lambda: log.read_text().strip().isdigit(), "the child is there")
    child = int(log.read_text())

    processes.end([running])

    wait_until(lambda: processes.started_at(child) is None, "the child is gone")


def test_the_cluster_of_a_killed_session_is_swept_away(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = State(tmp_path / f"{session.PREFIX}{dead.pid}-123")
    left.prepare()
    running = a_sleeper(left)
    left.write(Record(processes=(running,)))
    mine = tmp_path / f"{session.PREFIX}{os.getpid()}-{processes.started_at(os.getpid())}"
    mine.mkdir()

    session.sweep(tmp_path)

    assert not processes.is_alive(running)
    assert not left.folder.exists()
    assert mine.exists()
