"""An installation on the cluster of this run, and what its processes use of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks import report
from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import definitions, install
from tests.support import controlplane
from tests.support import stack as stacks
from tests.support.redisserver import RedisServer
from tools.devcluster import state as states

#: Elsewhere the control plane has machines of its own. Here it shares two cores with the measured
#: processes, so it has to wait when both want to run. ``NICENESS=0`` keeps it from starving on a
#: machine that does other work.
_CONTROL_PLANE_NICENESS = int(report.number("NICENESS", 10))
_SETS = "/apis/duepoint.dev/v1alpha1/namespaces/{ns}/schedulesets/{name}"
_READY_SECONDS = 60


@contextlib.asynccontextmanager
async def stack(server: RedisServer | None = None) -> AsyncIterator[stacks.Stack]:
    """Yield an installation without processes, on the cluster of DUEPOINT_TEST_STATE.

    Args:
        server: a running Redis; None starts a Valkey without storage.
    """
    state = states.State(Path(os.environ["DUEPOINT_TEST_STATE"]))
    record = state.read()
    assert record is not None
    for process in record.processes:
        give_way(process.pid)
    plane = controlplane.of(state, record)
    client = kubeapi.KubeApi(plane.kubeconfig)
    for crd in definitions():
        install(client, crd)
    client.close()
    with (
        _folder() as folder,
        _valkey(folder) if server is None else contextlib.nullcontext(server) as found,
    ):
        async with stacks.installed(plane, found, folder) as installed:
            yield installed


@contextlib.contextmanager
def _valkey(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer("valkey", folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder for the processes' logs; ``BENCH_LOGS=DIR`` keeps it."""
    if kept := os.environ.get("BENCH_LOGS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(dir=kept))
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def make_set(
    stack: stacks.Stack, name: str, target: Mapping[str, Any], changes_per_second: int = 100_000
) -> None:
    """Apply a ScheduleSet for ten million members and wait until it is ready."""
    path = _SETS.format(ns=stack.namespace, name=name)
    limits = {"members": 10_000_000, "changesPerSecond": changes_per_second}
    body = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "ScheduleSet",
        "metadata": {"name": name, "namespace": stack.namespace},
        "spec": {**target, "limits": limits},
    }
    await stack.api.request(
        "PATCH", path, body, query={"fieldManager": "bench", "force": "true"},
        content_type="application/apply-patch+yaml",
    )  # fmt: skip
    async with asyncio.timeout(_READY_SECONDS):
        while not _is_ready(json.loads(await stack.api.request("GET", path))):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


def _is_ready(found: Mapping[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def give_way(pid: int) -> None:
    """Lower the priority of a process: of each thread, because nothing else has one.

    Where the kernel groups processes by session (``sched_autogroup_enabled``), a thread's priority
    counts within its session only, and the session has one of its own: proc_pid_autogroup(5).
    """
    if os.getsid(pid) != os.getsid(0):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(_CONTROL_PLANE_NICENESS))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), _CONTROL_PLANE_NICENESS)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int, line: str = "VmRSS") -> float:
    """Return the resident memory of a process in MB (10^6 bytes); ``VmHWM``: the most so far."""
    for each in Path(f"/proc/{pid}/status").read_text().splitlines():
        if each.startswith(line):
            return int(each.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid}, which is measured, has ended; BENCH_LOGS=DIR keeps logs")


class Stolen:
    """The share of the processors' time that the host of this machine gave to other guests."""

    def __init__(self) -> None:
        self._stolen, self._all = self._counters()

    def percent(self) -> float:
        """Return the share since this object was made, 0 to 100."""
        stolen, everything = self._counters()
        return 100 * (stolen - self._stolen) / max(1, everything - self._all)

    @staticmethod
    def _counters() -> tuple[int, int]:
        # The eighth number of the first line is `steal`: proc_stat(5).
        first_line = Path("/proc/stat").read_text().split("\n", 1)[0]
        ticks = [int(word) for word in first_line.split()[1:9]]
        return ticks[7], sum(ticks)


@dataclass(slots=True)
class Use:
    """The CPU and memory of one process; a stall is how long its ``/healthz`` took to answer."""

    cpu_seconds: float = 0.0
    most_megabytes: float = 0.0
    stalls_ms: list[float] = field(default_factory=list)

    @property
    def worst_stall_ms(self) -> float:
        return max(self.stalls_ms, default=0.0)


@contextlib.asynccontextmanager
async def metered(
    pids: Mapping[str, int], probed: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Use]]:
    """Yield name -> Use, complete after the block; ``probed`` are addresses of ``/healthz``."""
    uses = {name: Use() for name in pids}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def look() -> None:
        for name, pid in pids.items():
            uses[name].most_megabytes = max(uses[name].most_megabytes, megabytes(pid))

    async def look_now_and_then() -> None:
        while True:
            look()
            await asyncio.sleep(1)

    async def probe(session: aiohttp.ClientSession, url: str, use: Use) -> None:
        while True:
            started = time.monotonic()
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    await answer.read()
            use.stalls_ms.append((time.monotonic() - started) * 1000)
            await asyncio.sleep(0.05)

    async with aiohttp.ClientSession() as session:
        tasks = [asyncio.create_task(look_now_and_then())]
        for name, url in (probed or {}).items():
            tasks.append(asyncio.create_task(probe(session, url, uses[name])))
        try:
            yield uses
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            look()
            for name, pid in pids.items():
                uses[name].cpu_seconds = cpu_seconds(pid) - before[name]


class Child:
    """``python -m MODULE WORD ...``: a process of a benchmark that says when it is ready."""

    def __init__(self, process: asyncio.subprocess.Process, first_line: str) -> None:
        self._process = process
        self.first_line = first_line

    @classmethod
    async def start(cls, module: str, *words: object, text: str = "") -> Child:
        """Start it; return after its first line of output. ``text`` goes to its standard input."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *map(str, words), stdin=pipe, stdout=pipe, limit=1 << 24
        )
        assert process.stdin is not None
        assert process.stdout is not None
        if text:
            process.stdin.write(text.encode() + b"\n")
        return cls(process, (await process.stdout.readline()).decode())

    async def finish(self, text: str = "") -> bytes:
        """Send ``text`` and return what it prints until it ends by itself."""
        said, _ = await self._process.communicate(text.encode() + b"\n" if text else None)
        if self._process.returncode:
            raise RuntimeError("a process of the benchmark failed, see above")
        return said

    async def terminate(self) -> bytes:
        """Ask it to end and return what it prints."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        said, _ = await self._process.communicate()
        return said
