"""Start programs, recognise them later, and end them together.

Each program gets a session of its own, so a Ctrl-C in the terminal does not reach it; we end it. A
process is recognised by pid and start time, never by pid alone. A marker in the environment lets
`marked` find programs that a crash left behind before they were recorded.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.devcluster.state import Running

MARKER = "DUEPOINT_STATE_OF_PROCESS"
GRACE_SECONDS = 10.0
KILL_SECONDS = 30.0  # a kill always succeeds, but takes time on a busy machine
POLL_SECONDS = 0.02

#: Our own living children by pid. No other code may wait for them. An ended one must be reaped
#: before a check, or it would still seem to be alive.
_children: dict[int, subprocess.Popen[bytes]] = {}


@atexit.register
def _let_go() -> None:
    """Keep Python from waiting for running programs: they may outlive us."""
    for child in _children.values():
        if child.poll() is None:
            child.returncode = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command line to start; `environment` is added to ours."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def start(program: Program, log: Path, folder: Path, descriptors: Sequence[int] = ()) -> Running:
    """Start `program` on behalf of the cluster in `folder`; its output goes to `log`.

    It inherits `descriptors`.
    """
    environment = {**os.environ, **program.environment, MARKER: str(folder)}
    with log.open("ab") as output:
        child = subprocess.Popen(
            program.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            pass_fds=descriptors,
        )
    _children[child.pid] = child
    return Running(name=program.name, pid=child.pid, started=started_at(child.pid) or "ended")


def is_alive(running: Running) -> bool:
    return started_at(running.pid) == running.started


def started_at(pid: int) -> str | None:
    """Return a text that no other process with this pid will have; None if it has ended."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may contain anything
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else ticks


def end(running: Iterable[Running], grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask every process to stop, last started first, then kill; return when all have ended."""
    left = [one for one in reversed(list(running)) if is_alive(one)]
    for one in left:
        _signal(one, signal.SIGTERM)
    left = _wait_for_end(left, grace_seconds)
    for one in left:
        _signal(one, signal.SIGKILL)
    _wait_for_end(left, KILL_SECONDS)


def marked(folder: Path) -> list[Running]:
    """Return living processes started for the cluster in `folder`, recorded or not."""
    wanted = f"{MARKER}={folder}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        pid = int(environment.parent.name)
        with contextlib.suppress(OSError):
            if wanted in environment.read_bytes().split(b"\0") and (born := started_at(pid)):
                found.append(Running(name="left behind", pid=pid, started=born))
    return found


def _wait_for_end(running: list[Running], seconds: float) -> list[Running]:
    deadline = time.monotonic() + seconds
    left = [one for one in running if is_alive(one)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        left = [one for one in left if is_alive(one)]
    return left


def _signal(running: Running, number: signal.Signals) -> None:
    """Send a signal to the session's group, so that the program's children end with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(running.pid, number)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(running.pid, number)
