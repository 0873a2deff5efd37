"""Processes are recognised for what they are, and ended together with their children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.waiting import wait_until
from tools.devcluster import cluster, ports, processes, session
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


def test_a_process_is_alive_until_it_is_ended(state):
    running = a_sleeper(state)
    assert processes.is_alive(running)

    processes.end([running])

    assert not processes.is_alive(running)


def test_a_later_process_with_the_same_pid_is_not_taken_for_the_former(state):
    running = a_sleeper(state)
    former = Running(name="former", pid=running.pid, started="12")

    processes.end([former])

    assert not processes.is_alive(former)
    assert processes.is_alive(running)


def test_a_process_that_ignores_the_request_is_killed(state):
    running = a_sleeper(state, "trap '' TERM; echo ready; while :; do sleep 1; done")
    log = state.logs / "sleeper.log"
    wait_until(lambda: "ready" in log.read_text(), "the trap is set")

    processes.end([running], grace_seconds=0.1)

    assert not processes.is_alive(running)


def test_children_end_with_their_parent(state):
    running = a_sleeper(state, "sleep 60 & echo $!; wait")
    log = state.logs / "sleeper.log"
    wait_until(lambda: log.read_text().strip().isdigit(), "the child is there")
    child = int(log.read_text())

    processes.end([running])

    wait_until(lambda: processes.started_at(child) is None, "the child is gone")


@pytest.mark.skipif(sys.platform != "linux", reason="environments are read from /proc")
def test_a_process_started_and_never_recorded_is_found_and_ended(state):
    running = a_sleeper(state)
    wait_until(lambda: processes.marked(state.folder) != [], "the program has replaced our fork")

    assert cluster.end(state) is True

    assert not processes.is_alive(running)


@pytest.mark.skipif(sys.platform != "linux", reason="environments are read from /proc")
def test_processes_of_another_state_are_left_alone(state, tmp_path):
    running = a_sleeper(state)

    assert cluster.end(State(tmp_path / "another")) is False

    assert processes.is_alive(running)


def test_down_may_be_said_twice(state):
    state.write(Record(processes=(a_sleeper(state),)))

    assert cluster.down(state) is True
    assert cluster.down(state) is False


def test_applications_end_before_the_servers_they_use(state):
    report = 'trap "echo $0 >> {log}; exit" TERM; echo ready; while :; do sleep 0.01; done'
    order = state.folder / "order"
    names = {}
    for name in ("server", "application"):
        script = report.format(log=order).replace("$0", name)
        program = Program(name=name, command=("sh", "-c", script))
        names[name] = processes.start(program, state.logs / f"{name}.log", state.folder)
        log = state.logs / f"{name}.log"
        wait_until(lambda log=log: "ready" in log.read_text(), "it listens to signals")
    state.write(Record(processes=(names["server"],), applications=(names["application"],)))

    cluster.down(state)

    assert order.read_text().split() == ["application", "server"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_record_nobody_can_read_is_no_record(state, text):
    state.record_file.write_text(text)

    assert state.read() is None
    assert cluster.down(state) is False


def test_a_record_survives_writing_and_reading(state):
    record = Record(
        complete=True,
        server="https://127.0.0.1:1",
        processes=(Running(name="a", pid=1, started="2"),),
    )

    state.write(record)

    assert state.read() == record


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


def test_a_server_that_ends_while_starting_is_reported_with_its_last_words(state):
    startup = cluster.Startup(state, Record())
    startup.start(Program(name="server", command=("sh", "-c", "echo cannot read flags; exit 1")))

    with pytest.raises(cluster.DevClusterError, match=r"server ended while starting.*\n.*cannot"):
        startup.wait_until("it listens", lambda: False)


def test_a_port_taken_in_the_last_moment_is_told_from_other_failures(state):
    startup = cluster.Startup(state, Record())
    words = "listen tcp 127.0.0.1:2379: bind: address already in use"
    startup.start(Program(name="server", command=("sh", "-c", f"echo {words}; exit 1")))

    with pytest.raises(cluster.PortTakenError):
        startup.wait_until("it listens", lambda: False)


def test_ports_are_different_and_those_of_last_time_when_free():
    first = ports.choose(["a", "b", "c"], {})
    again = ports.choose(["a", "b", "c"], first)

    assert len(set(first.values())) == 3
    assert again == first


def test_one_port_wished_for_twice_is_given_once():
    port = ports.any_free()

    chosen = ports.choose(["a", "b"], {"a": port, "b": port})

    assert chosen["a"] == port
    assert chosen["b"] != port


def test_a_session_passes_termination_on_to_its_command_and_its_exit_code_back():
    """Without the cluster, which other tests start: only the waiting for the command."""
    command = ["sh", "-c", "trap 'exit 9' TERM; echo on; while :; do sleep 0.01; done"]
    script = (
        "import sys\n"
        "from tools.devcluster import session\n"
        f"sys.exit(session._run({command!r}, {{}}))\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    assert runner.stdout.readline() == "on\n"

    runner.send_signal(signal.SIGTERM)

    assert runner.wait(60) == 9
    runner.stdout.close()
