"""Start, query, pause, drain and kill an operator, worker or API as a process.

A process is ``python -m duepoint ROLE``, or the same in an interpreter that has already imported
Duepoint (``prepared``). Imports are most of the cost of a start, up to two seconds of CPU, and a
suite starts a thousand processes. Prepared ones are forked from a server, one for each process of
the tests, that has imported everything and done nothing. They run the same module as ``__main__``,
with the same arguments, environment, log and signals; but they share the seed of ``hash()``, and
Python reads no ``PYTHON...`` variable again. Benchmarks and chaos tests start real commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Protocol

from duepoint.faults import FaultPoint
from tests.support.waiting import LONGEST_SECONDS, eventually

ROOT = Path(__file__).resolve().parents[2]
#: The modules that together import everything that any role needs.
_IMPORTED = ["duepoint.app", "duepoint.cli.processes", "duepoint.controller.leadership",
             "duepoint.controller.watching.kopfthread", "duepoint.httpapi.service"]  # fmt: skip


class Child(Protocol):
    """A started process."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        ...

    def wait(self) -> int:
        """Wait until it ends, and return its exit code."""
        ...

    def kill(self) -> None: ...


class Process:
    """An operator, a worker or the HTTP API.

    Attributes:
        code: a folder with another version of the package, from the next start on; None = ours.

    Args:
        environment: its settings, added to the variables of this process.
        prefix: a command that runs the process, such as ``unshare``.
        dies_at: the fault point at which it dies, as by kill -9.
        is_prepared: start with everything imported; only possible without a prefix.
    """

    def __init__(
        self,
        role: str,
        name: str,
        environment: Mapping[str, str],
        log: Path,
        prefix: Sequence[str] = (),
        dies_at: FaultPoint | None = None,
        *,
        is_prepared: bool = False,
    ) -> None:
        self._module = "duepoint" if dies_at is None else "tests.support.faultyprocess"
        self._arguments = [role] if dies_at is None else [dies_at, role]
        self._prefix = prefix
        self._is_prepared = is_prepared
        self.role = role
        self.name = name
        self.log = log
        self._environment = {**os.environ, **environment}
        self.http = f"http://127.0.0.1:{environment['DUEPOINT_HTTP_PORT']}"
        self._child: Child | None = None

    def start(self) -> None:
        self.log.touch()
        if self._is_prepared:
            self._child = _Prepared(self._module, self._arguments, self._environment, self.log)
            return
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", self._module, *self._arguments],
                env=self._environment,
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        return self._child is None or self._child.poll() is not None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """Kill it as kill -9 does: it cannot clean up."""
        self.send(signal.SIGKILL)
        await self.wait_for_end()

    async def drain(self) -> int:
        """Send SIGTERM, wait until it ends, and return the exit code."""
        self.send(signal.SIGTERM)
        return await self.wait_for_end()

    async def wait_for_end(self) -> int:
        assert self._child is not None
        return await asyncio.wait_for(asyncio.to_thread(self._child.wait), LONGEST_SECONDS)

    async def wait_until_ready(self) -> None:
        what = f"{self.name} is ready; see {self.log}"
        await eventually(self._is_ready, what, pause_seconds=0.02)

    async def troubles(self) -> str:
        """Return the problems that /readyz reports; empty when ready."""
        return await asyncio.to_thread(self._readyz)

    async def metrics(self) -> str:
        request = functools.partial(
            urllib.request.urlopen, f"{self.http}/metrics", timeout=LONGEST_SECONDS
        )
        with await asyncio.to_thread(request) as answer:
            return str(answer.read().decode())

    async def _is_ready(self) -> bool:
        try:
            return not await self.troubles()
        except OSError:
            return False

    def _readyz(self) -> str:
        try:
            with urllib.request.urlopen(f"{self.http}/readyz", timeout=LONGEST_SECONDS):
                return ""
        except urllib.error.HTTPError as refused:
            return refused.read().decode()

    def end(self) -> None:
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGCONT)
            self._child.kill()
            self._child.wait()


# -- processes that have imported everything -------------------------------------------------------


class _Prepared:
    """A child of this process's fork server, which passes on its exit code."""

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self._process = _server().Process(
            target=_run, args=(module, list(arguments), dict(environment), str(log)), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        with self._reading:  # the code can be read only once
            return self._process.exitcode

    def wait(self) -> int:
        connection.wait([self._process.sentinel])
        code = self.poll()
        assert code is not None
        return code

    def kill(self) -> None:
        self._process.kill()


@functools.cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def _run(module: str, arguments: list[str], environment: dict[str, str], log: str) -> None:
    """Become ``python -m MODULE ARGUMENTS``; runs in the new process."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
