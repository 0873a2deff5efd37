"""The installation that scenarios measure: a Stack on the cluster of this run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import CRDS, definition, install
from tests.support import controlplane
from tests.support import stack as stacks
from tests.support.redisserver import RedisServer
from tools.devcluster import state as states

#: Elsewhere the control plane has machines of its own. Here it shares two cores with what is
#: measured, so it is the one to wait when both want to run.
_CONTROL_PLANE_NICENESS = 10
_SETS = "/apis/duepoint.dev/v1alpha1/namespaces/{ns}/schedulesets/{name}"
_READY_SECONDS = 60


@contextlib.asynccontextmanager
async def stack(server: RedisServer | None = None) -> AsyncIterator[stacks.Stack]:
    """An installation without processes, on the cluster that DUEPOINT_TEST_STATE names.

    Args:
        server: a Redis that runs; None = a Valkey of its own, which keeps nothing.
    """
    state = states.State(Path(os.environ["DUEPOINT_TEST_STATE"]))
    record = state.read()
    assert record is not None
    for process in record.processes:
        give_way(process.pid)
    plane = controlplane.of(state, record)
    client = kubeapi.KubeApi(plane.kubeconfig)
    for path in CRDS:
        install(client, definition(path))
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
    """Where processes log: below BENCH_LOGS it stays, for who wants to know why one ended."""
    if kept := os.environ.get("BENCH_LOGS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(dir=kept))
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def make_set(stack: stacks.Stack, name: str, target: Mapping[str, Any]) -> None:
    """A ScheduleSet for a million members, ready."""
    path = _SETS.format(ns=stack.namespace, name=name)
    body = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "ScheduleSet",
        "metadata": {"name": name, "namespace": stack.namespace},
        "spec": {**target, "limits": {"members": 1_000_000, "changesPerSecond": 100_000}},
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
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_megabytes(pid: int) -> float:
    """Resident memory of a process, in MB of 10^6 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next((line.split()[1] for line in lines if line.startswith("VmRSS")), None)
    if kilobytes is None:
        raise RuntimeError(
            f"process {pid}, which is measured, has ended; BENCH_LOGS=DIR keeps logs"
        )
    return int(kilobytes) * 1024 / 1e6
