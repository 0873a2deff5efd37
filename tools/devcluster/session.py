"""`run`: a cluster for the length of one command, in a state folder of its own.

The command finds the cluster in KUBECONFIG, REDIS_URL and DUEPOINT_TEST_STATE. `run` passes on its
exit code and lets Ctrl-C and SIGTERM reach it, and ends the cluster in any case. It prints nothing
after the command has ended, so that the command's last line stays the last one. A session that was
killed leaves a cluster behind, which the next one removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from tools.devcluster import binaries, cluster, processes
from tools.devcluster.state import Record, State

PREFIX = "run-"

Handler: TypeAlias = Callable[[int, FrameType | None], None]


def run(
    parent: Path,
    command: Sequence[str],
    tools: Sequence[str] = (),
    bring: Callable[[State], Record] = cluster.up,
) -> int:
    """Run `command` beside a cluster under `parent`, started by `bring`; return its exit code.

    `tools` are programs to provide as well, their paths in DUEPOINT_TEST_<NAME>, such as
    DUEPOINT_TEST_REDIS_SERVER.
    """
    sweep(parent)
    extra = {
        f"DUEPOINT_TEST_{name.upper().replace('-', '_')}": str(path)
        for name, path in binaries.ensure(tools).items()
    }
    me = processes.started_at(os.getpid()) or "0"
    state = State(parent / f"{PREFIX}{os.getpid()}-{me}")
    try:
        with _handling({signal.SIGTERM: signal.default_int_handler}):
            record = bring(state)
            settings = {
                **record.environment(),
                "DUEPOINT_TEST_STATE": str(state.folder),
                "DUEPOINT_TEST_CLUSTER": record.kind,
                **extra,
            }
            return _run(command, settings)
    except KeyboardInterrupt:
        return 130
    finally:
        remove(state)


def sweep(parent: Path) -> None:
    """End the clusters of killed sessions."""
    for folder in parent.glob(f"{PREFIX}*-*"):
        pid, _, started = folder.name.removeprefix(PREFIX).partition("-")
        if pid.isdigit() and processes.started_at(int(pid)) != started:
            remove(State(folder))


def remove(state: State) -> None:
    """End the cluster and delete everything except its logs, which move to a folder beside it."""
    cluster.down(state, keep=False)
    kept = state.folder.parent / "last-run-logs"
    if state.logs.exists():
        shutil.rmtree(kept, ignore_errors=True)
        with contextlib.suppress(OSError):  # another session may be doing the same
            state.logs.rename(kept)
    shutil.rmtree(state.folder, ignore_errors=True)


def _run(command: Sequence[str], settings: Mapping[str, str]) -> int:
    """Run `command` and wait for it, even if signals come.

    A Ctrl-C in the terminal reaches it without us, and it ends in its own way. A SIGTERM comes to
    us alone, so we pass it on, even if it came before the process existed.
    """
    children: list[subprocess.Popen[bytes]] = []
    terminated = False

    def pass_on(number: int, _frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = terminated or number == signal.SIGTERM
        if number == signal.SIGTERM and children:
            children[0].terminate()

    with _handling({signal.SIGTERM: pass_on, signal.SIGINT: pass_on}):
        children.append(subprocess.Popen(command, env={**os.environ, **settings}))
        if terminated:
            children[0].terminate()
        code = children[0].wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
