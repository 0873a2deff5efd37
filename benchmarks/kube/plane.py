"""The servers of the development cluster, restarted as a measurement needs them.

The API server gets an audit log, which shows who requested what and when it was answered. The
controller manager runs only the CronJob controller, at chosen limits, or not at all. The cluster
recognises processes that are started here as its own, and ends them with the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import scene
from tests.support.controlplane import ControlPlane
from tools.devcluster import processes
from tools.devcluster import state as states
from tools.devcluster.processes import Program
from tools.devcluster.state import Running

#: Metadata of requests, no bodies. Leases and requests of the servers themselves are noise.
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


class Plane:
    """The control plane of this run; its controller manager does not run."""

    def __init__(self, plane: ControlPlane) -> None:
        self._folder = plane.folder
        record = states.State(plane.folder).read()
        assert record is not None
        running = {one.name: one for one in record.processes}
        self.etcd_pid = running["etcd"].pid
        self._controllers = _program(running["kube-controller-manager"])
        processes.end([running["kube-controller-manager"]])
        policy = plane.folder / "audit-policy.json"
        policy.write_text(json.dumps(_POLICY))
        self.audit_log = plane.folder / "audit.log"
        server = running["kube-apiserver"]
        flags = {
            "audit-policy-file": str(policy),
            "audit-log-path": str(self.audit_log),
            "audit-log-maxsize": "4000",
        }
        program = _program(server, **flags)
        processes.end([server])
        self.api_server = self._start(program)

    @contextlib.asynccontextmanager
    async def cronjobs(self, **flags: str) -> AsyncIterator[None]:
        """Run the CronJob controller, alone, with these flags, within the context."""
        named = {name.replace("_", "-"): value for name, value in flags.items()}
        controller = _with(self._controllers, controllers="cronjob-controller", **named)
        running = self._start(controller)
        try:
            yield
        finally:
            await asyncio.to_thread(processes.end, [running])

    def _start(self, program: Program) -> Running:
        log = self._folder / "logs" / f"{program.name}-again.log"
        return processes.start(program, log, self._folder)


@contextlib.asynccontextmanager
async def opened(plane: ControlPlane) -> AsyncIterator[Plane]:
    """Restart the API server with an audit log; yield the plane once it answers again."""
    made = await asyncio.to_thread(Plane, plane)
    admin = plane.admin()
    while not await asyncio.to_thread(admin.is_ready):  # noqa: ASYNC110 - it sets no event
        await asyncio.sleep(0.1)
    scene.give_way(made.api_server.pid)
    yield made


def _program(running: Running, **flags: str) -> Program:
    """Return the program that starts this process again, with additional flags."""
    proc = Path(f"/proc/{running.pid}")
    command = proc.joinpath("cmdline").read_bytes().decode().rstrip("\0").split("\0")
    lines = proc.joinpath("environ").read_bytes().decode().rstrip("\0").split("\0")
    environment = dict(line.partition("=")[::2] for line in lines)
    program = Program(name=running.name, command=tuple(command), environment=environment)
    return _with(program, **flags)


def _with(program: Program, **flags: str) -> Program:
    """Return the program with these flags, which replace those of the same names."""
    wanted = {f"--{name}": value for name, value in flags.items()}
    kept = [part for part in program.command if part.partition("=")[0] not in wanted]
    command = (*kept, *(f"{name}={value}" for name, value in wanted.items()))
    return Program(name=program.name, command=command, environment=program.environment)
