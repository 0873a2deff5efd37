"""The ``duepoint`` command for tests that call it often, forked from a process that imported it.

Imports are most of what a short command costs. ``warm`` puts programs into a folder of the PATH
that hand their words, environment, folder and standard streams to a server; it forks, and the fork
runs the same entry point and ends as an interpreter ends. Signals go to it, and its exit code comes
back. What serves or goes on until Ctrl-C starts as ever, and so does all without that folder.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Program -> its entry point in ``duepoint.cli``.
_PROGRAMS = {"duepoint": "main", "kubectl-duepoint": "plugin"}
#: Subcommands that start as ever.
_LONG = ("api", "load", "operator", "run", "worker")
#: What subcommands import when they run.
_IMPORTED_LATE = ("duepoint.delayqueue.delayqueue", "duepoint.kube.api", "duepoint.telemetry")
_BEGUN = "ready\n"
_CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
if sys.argv[1:2] and sys.argv[1] in {long}:
    os.execv({true!r}, [{true!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: server.send(bytes([number])))
request = json.dumps(dict(entry={entry!r}, program=sys.argv[0], words=sys.argv[1:],
                          folder=os.getcwd(), environment=dict(os.environ))).encode()
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
server.sendall(request)
code = server.recv(1)
sys.exit(code[0] if code else "the server of warm commands has gone")
"""


@contextlib.contextmanager
def warm(programs: Path, true: Path) -> Iterator[None]:
    """Programs in this folder, until the end; ``true``: the folder of those with a true start."""
    with tempfile.TemporaryDirectory(prefix="duepoint-") as folder:
        address = f"{folder}/commands"
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, address],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with server:  # which closes its standard input at the end, and waits
            assert server.stdout is not None
            assert server.stdout.readline() == _BEGUN
            for program, entry in _PROGRAMS.items():
                file = programs / program
                file.write_text(
                    _CLIENT.format(
                        python=sys.executable, long=_LONG, address=address, entry=entry,
                        true=str(true / program),
                    )
                )  # fmt: skip
                file.chmod(0o755)
            yield


def serve(address: str) -> None:
    """Fork for each request until standard input ends."""
    _import_commands()
    gc.freeze()  # collections of a fork, the last one at its end, leave the imported alone
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended forks leave nothing
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, _BEGUN.encode())
        while listener in select.select([listener, 0], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(connection)
                return
            connection.close()


def _import_commands() -> None:
    package = importlib.import_module("duepoint.cli")
    for module in pkgutil.walk_packages(package.__path__, "duepoint.cli."):
        importlib.import_module(module.name)
    for name in _IMPORTED_LATE:
        importlib.import_module(name)


def _answer(connection: socket.socket) -> None:
    """Run the command in a fork of its own, which returns or raises; this process ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    request = json.loads(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
    if (child := os.fork()) == 0:
        connection.close()
        _run(request, streams)
        return
    for stream in (*streams, 0, 1, 2):
        os.close(stream)  # a pipe of the command ends with it
    code = _code_of(child, connection)
    with contextlib.suppress(OSError):  # the client may have been killed
        connection.send(bytes([code]))
    os._exit(0)


def _run(request: dict[str, Any], streams: list[int]) -> None:
    """In the new process: be the program."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Those of the server know its own: whether one can be sought in, and how it is buffered.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the rest of the process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv[:] = [request["program"], *request["words"]]
    getattr(importlib.import_module("duepoint.cli"), request["entry"])()


def _code_of(child: int, connection: socket.socket) -> int:
    """Its exit code as a shell has it; it gets the signals of its client, and ends with it."""
    ended = os.pidfd_open(child)
    while ended not in select.select([ended, connection], [], [])[0]:
        numbers = connection.recv(16)
        for number in numbers:
            os.kill(child, number)
        if not numbers:
            os.kill(child, signal.SIGKILL)
            break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    serve(sys.argv[1])
