"""The servers of the development cluster, restarted as a measurement needs them.

The API server gets an audit log, which shows who asked for what and when it was answered. The
controller manager runs only the CronJob controller, at chosen limits, or not at all. A restarted
server keeps its other flags and the mark of its cluster, so the end of the session ends it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import scene
from tests.support.controlplane import ControlPlane
from tools.devcluster import processes
from tools.devcluster import state as states
from tools.devcluster.state import Record, Running

API_SERVER = "kube-apiserver"
CONTROLLERS = "kube-controller-manager"

#: Who, what, which and when; no bodies. Leases and reads of the servers themselves are noise.
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}]},
        {"level": "None", "users": ["system:apiserver", "kwok", "system:kube-scheduler"]},
        {"level": "Metadata", "resources": [
            {"group": "batch"}, {"group": "duepoint.dev"}, {"group": "events.k8s.io"},
            {"group": ""},
        ]},
        {"level": "None"},
    ],
}  # fmt: skip


@dataclass(slots=True)
class Server:
    """One server: its command line, and the process where it runs."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    pid: int
    child: subprocess.Popen[bytes] | None = field(default=None)

    async def stop(self) -> None:
        """Returns when it is over."""
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        while self.child.poll() is None if self.child else _lives(self.pid):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self.pid, self.child = 0, None

    def start(self, **flags: str) -> None:
        """Start it with these flags beside, or instead of, those it had."""
        replaced = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
        kept = [part for part in self.command if part.partition("=")[0] not in replaced]
        command = [*kept, *(f"{name}={value}" for name, value in replaced.items())]
        with self.log.open("ab") as output:
            self.child = subprocess.Popen(
                command, env=self.environment, stdout=output, stderr=output,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.pid = self.child.pid


class Plane:
    """The control plane of this run."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._state = states.State(plane.folder)
        self.audit_log = plane.folder / "audit.log"
        self._policy = plane.folder / "audit-policy.json"
        running = {one.name: one.pid for one in self._record().processes}
        self.api_server = _server(running[API_SERVER], API_SERVER, plane.folder)
        self.controllers = _server(running[CONTROLLERS], CONTROLLERS, plane.folder)
        self.etcd_pid = running["etcd"]

    async def audit(self) -> None:
        """From now on the API server writes down every request that counts."""
        if not self.audit_log.exists():
            self._policy.write_text(json.dumps(_POLICY))
            await self.stop(self.api_server)
            self.start(
                self.api_server,
                audit_policy_file=str(self._policy),
                audit_log_path=str(self.audit_log),
                audit_log_maxsize="4000",
            )
        await self._until_ready()

    async def _until_ready(self) -> None:
        admin = self._plane.admin()
        while not await asyncio.to_thread(admin.is_ready):  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0.1)
        scene.give_way(self.api_server.pid)

    @contextlib.asynccontextmanager
    async def cronjobs(self, **flags: str) -> AsyncIterator[int]:
        """The CronJob controller, alone; gives its pid."""
        self.start(self.controllers, controllers="cronjob-controller", **flags)
        try:
            yield self.controllers.pid
        finally:
            await self.stop(self.controllers)

    async def stop(self, server: Server) -> None:
        pid = server.pid
        await server.stop()
        left = tuple(one for one in self._record().processes if one.pid != pid)
        self._state.write(dataclasses.replace(self._record(), processes=left))

    def start(self, server: Server, **flags: str) -> None:
        """As the cluster itself starts it, so that the end of the cluster ends it too."""
        server.start(**flags)
        born = processes.started_at(server.pid) or "ended"
        running = Running(name=server.name, pid=server.pid, started=born)
        record = self._record()
        everyone = (*record.processes, running)
        self._state.write(dataclasses.replace(record, processes=everyone))

    def _record(self) -> Record:
        record = self._state.read()
        assert record is not None
        return record


@contextlib.asynccontextmanager
async def opened(plane: ControlPlane) -> AsyncIterator[Plane]:
    """The plane with an audit log, and without controllers until the end."""
    made = Plane(plane)
    await made.stop(made.controllers)
    await made.audit()
    try:
        yield made
    finally:
        if made.controllers.pid:
            await made.stop(made.controllers)
        made.start(made.controllers)


def _server(pid: int, name: str, folder: Path) -> Server:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
    environment = dict(line.partition("=")[::2] for line in lines)
    return Server(name, command, environment, folder / "logs" / f"{name}-again.log", pid)


def _lives(pid: int) -> bool:
    """The child of another process may stay as a zombie until that process looks after it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
