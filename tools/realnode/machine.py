"""A machine inside this one: own mounts, network, processes, hostname, IPC and cgroup root.

Its first process is `inside`. When that process ends, for whatever reason, all others end, and
mounts, interfaces and rules go with their namespaces; only cgroups and the folder are left for
`remove`. The API server is reached at a port of the host's loopback address: the socket is opened
here and handed in, and a socket stays in the network that it was opened in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tools.devcluster import binaries, cache, ports, processes, progress
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REAL, REPOSITORY, Record, Running, State

READY_SECONDS = 180.0  # 20 s on an idle machine
POLL_SECONDS = 0.05
REMOVE_SECONDS = 20.0
CGROUPS = Path("/sys/fs/cgroup")


def inner(state: State) -> State:
    """Return the state of the control plane in the machine, with process ids of its own."""
    return State(state.folder / "node")


def ready_file(state: State) -> Path:
    """Return the path of a file that exists once Pods can run."""
    return inner(state).folder / "ready"


def parts_file(state: State) -> Path:
    return inner(state).folder / "parts.json"


def log_file(state: State) -> Path:
    return state.folder / "node.log"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a node: programs by name, and archives of images."""

    programs: dict[str, str]
    images: list[str]

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Parts:
        return cls(**json.loads(file.read_text()))


def start(state: State, parts: Parts) -> Record:
    """Start a node of these parts; on failure leave nothing of it."""
    state.prepare()
    inner(state).prepare()
    parts.write(parts_file(state))
    log_file(state).write_text("")
    port = ports.choose(["kube-apiserver"], state.read_ports())["kube-apiserver"]
    state.write_ports({**state.read_ports(), "kube-apiserver": port})
    record = Record(
        kind=REAL,
        kubeconfig=str(inner(state).kubeconfig),
        server=f"https://127.0.0.1:{port}",
        kubernetes=binaries.chosen_kubernetes(),
    )
    try:
        running = _launch(state, port)
        record = dataclasses.replace(record, processes=(running,))
        state.write(record)
        _wait_until_ready(state, running)
    except BaseException:
        remove(state)
        raise
    record = dataclasses.replace(record, complete=True)
    state.write(record)
    return record


def remove(state: State) -> bool:
    """End all processes of the machine; delete its cgroups and its files, except the logs."""
    if not inner(state).folder.exists():
        return False
    record = state.read() or Record()
    living = [one for one in record.processes if processes.is_alive(one)]
    known = {one.pid for one in living}
    living += [one for one in processes.marked(state.folder) if one.pid not in known]
    processes.end(living, grace_seconds=0.0)  # nothing of value is in there
    _remove_groups(state)
    shutil.rmtree(state.logs, ignore_errors=True)
    if inner(state).logs.exists():
        inner(state).logs.rename(state.logs)
    shutil.rmtree(inner(state).folder)
    state.record_file.unlink(missing_ok=True)
    return True


def enter(record: Record) -> list[str]:
    """Return the prefix of a command line that is to run inside."""
    outer = record.processes[0].pid
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    if not children:
        raise DevClusterError("the node has ended; start it again: make real")
    return ["nsenter", f"--target={children[0]}", "--all", "--"]


def _launch(state: State, port: int) -> Running:
    groups = [str(path) for path in _make_groups(state)]
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
        listener.set_inheritable(True)
        node = [sys.executable, "-m", "tools.realnode.inside", str(state.folder), str(port)]
        node += [str(listener.fileno())]
        namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup"]
        unshare = ["unshare", *namespaces, "--propagation=private", "--fork", "--kill-child"]
        join = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
        program = processes.Program(
            name="node",
            command=("sh", "-ec", join, "join", *groups, "--", *unshare, "--mount-proc", *node),
            environment={"PYTHONPATH": f"{REPOSITORY / 'operator'}:{REPOSITORY}"},
        )
        return processes.start(program, log_file(state), state.folder, (listener.fileno(),))


def _wait_until_ready(state: State, running: Running) -> None:
    deadline = time.monotonic() + READY_SECONDS
    with log_file(state).open() as log:
        while not ready_file(state).exists():
            for line in log:
                if line.startswith("node: "):
                    progress.say(f"  {line.removeprefix('node: ').rstrip()}")
            is_over = time.monotonic() > deadline
            if is_over or not processes.is_alive(running):
                reason = f"is not Ready after {READY_SECONDS:.0f} s" if is_over else "has ended"
                end = "\n".join(log_file(state).read_text().splitlines()[-20:])
                raise DevClusterError(
                    f"the node {reason}; logs: {state.logs}. Its last lines:\n{end}"
                )
            time.sleep(POLL_SECONDS)


def group_name(state: State) -> str:
    return f"duepoint-{cache.fingerprint({'folder': str(state.folder)})}"


def _make_groups(state: State) -> Iterator[Path]:
    """Make our own group in each hierarchy of version 1, or in the one of version 2."""
    for root in _hierarchies():
        group = root / group_name(state)
        group.mkdir(exist_ok=True)
        if (root / "cpuset.mems").exists():  # version 1: a group starts without any
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((root / name).read_text())
            (group / "cgroup.clone_children").write_text("1")
        yield group


def _remove_groups(state: State) -> None:
    """Remove the cgroups; retry, because processes leave a group only after they have ended."""
    groups = [root / group_name(state) for root in _hierarchies()]
    deadline = time.monotonic() + REMOVE_SECONDS
    while left := [group for group in groups if group.exists()]:
        for group in left:
            for folder in (*sorted(group.rglob("*/"), reverse=True), group):
                if folder.is_dir():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
        if time.monotonic() > deadline:
            names = ", ".join(map(str, left))
            raise DevClusterError(f"processes remain in {names}; end those in its cgroup.procs")
        time.sleep(POLL_SECONDS)


def _hierarchies() -> list[Path]:
    """Return the mount points of the hierarchies: several of version 1, or one of version 2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [Path(where) for _, where, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]
    return [path for path in found if path.is_relative_to(CGROUPS)]


def run_inside(record: Record, *command: str) -> str:
    """Run a command in the machine, and return its standard output."""
    result = subprocess.run([*enter(record), *command], capture_output=True, text=True, check=False)
    if result.returncode:
        raise DevClusterError(f"{command[0]} in the node: {result.stderr.strip()[-1000:]}")
    return result.stdout
