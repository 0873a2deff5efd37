"""Operator and worker of the product in this process, over an API server in memory and a Valkey.

Everything that decides is the product's: reconcile, queue, claims, targets, statuses. What a
cluster would bring is small and ours: the API server (``kube.local``), a Job controller (``jobs``),
and manifests of this machine in place of ``kubectl apply``. There is one of each process, so the
operator leads at once.

The egress guard is open to this machine and its network, because the person who writes the
manifests owns both; Duepoint's own Valkey stays closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from duepoint import app, comparedclock, errors, services, settings
from duepoint import clock as clocks
from duepoint.cli.local import jobs
from duepoint.controller.watching import directwatch
from duepoint.kube import port, schedules
from duepoint.kube.local.api import LocalApi
from duepoint.net import ownservers
from duepoint.runs.run import RunEvent

#: Of the installation; Schedules are in the namespaces of their manifests.
SYSTEM_NAMESPACE = "duepoint-system"
#: How long deliveries under way may go on at the end.
GRACE_SECONDS = 5.0

_LOOPBACK = "127.0.0.1/32,::1/128"


class Engine:
    """The parts that run; made by ``running``.

    Attributes:
        api: takes the objects.
        healths: what operator and worker say of themselves.
    """

    def __init__(
        self,
        api: LocalApi,
        healths: tuple[services.Health, ...],
        parts: tuple[asyncio.Task[None], ...],
    ) -> None:
        self.api = api
        self.healths = healths
        self._parts = parts
        self._services: set[tuple[str, str]] = set()

    async def stand_in(self, namespace: str, name: str, service_port: int | str, at: int) -> None:
        """Let a port of this machine stand for a Service, which has no Pods here."""
        if (namespace, name) in self._services:
            return
        self._services.add((namespace, name))
        self.api.add_namespace(namespace)
        number = service_port if isinstance(service_port, int) else at
        named = "http" if isinstance(service_port, int) else service_port
        service = {
            "metadata": {"name": name},
            "spec": {"clusterIP": "None", "ports": [{"name": named, "port": number}]},
        }
        await self.api.request("POST", port.path("/api/v1", namespace, "services"), service)
        slice_ = {
            "metadata": {
                "generateName": f"{name}-",
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": [{"name": named, "port": at}],
        }
        slices = port.path("/apis/discovery.k8s.io/v1", namespace, "endpointslices")
        await self.api.request("POST", slices, slice_)

    def raise_for_ended(self) -> None:
        """Raise what has ended a part that should run; it is a bug."""
        for part in self._parts:
            if part.done():
                part.result()
                raise errors.Bug("a part of duepoint run has ended by itself")

    def troubles(self) -> list[str]:
        """What is not well, a line each."""
        found = (health.troubles() for health in self.healths)
        return [
            f"{part}: {why}" for each in found for part, why in each.items() if why != "starting"
        ]

    async def listed(self, plural: str) -> list[dict[str, Any]]:
        """All Schedules or ScheduleRuns as they are now, by namespace and name."""
        body = await self.api.request("GET", schedules.collection(plural=plural))
        items: list[dict[str, Any]] = msgspec.json.decode(body)["items"]
        return items


@contextlib.asynccontextmanager
async def running(
    redis_url: str,
    folder: Path,
    *,
    executes: bool,
    on_run: Callable[[RunEvent], None],
    on_begin: jobs.OnBegin,
    on_output: jobs.OnOutput,
) -> AsyncIterator[Engine]:
    """Operator, worker and Jobs run inside; they are drained at the end.

    Args:
        folder: of ours alone, for the key that signs what is kept in the queue.
        executes: run the commands of Jobs on this machine.
        on_run: takes every event of a run.
        on_begin: takes each Job as it begins.
        on_output: takes a namespaced Job name and a line that it wrote.
    """
    key = folder / "blob-key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(32))
    common = {
        "redis_url": redis_url,
        "blob_key_file": str(key),
        "namespace": SYSTEM_NAMESPACE,
        "http_port": "0",
    }
    clock = comparedclock.ComparedClock(clocks.SystemClock())
    api = LocalApi(clock.now_us, namespaces=("default", SYSTEM_NAMESPACE))
    healths = services.Health(), services.Health()
    of_operator = {"identity": "operator"}
    of_worker = {
        "identity": "worker",
        "grace_seconds": str(GRACE_SECONDS),
        "egress_mode": "open",
        "egress_allowed_cidrs": _LOOPBACK,
        "webhook_insecure": "http",
    }
    # The environment is the person's, and may hold the settings of another installation.
    operator = settings.read(settings.OperatorSettings, {}, common | of_operator)
    worker = settings.read(settings.WorkerSettings, {}, common | of_worker)
    runner = jobs.JobRunner(api, clock, executes=executes, on_begin=on_begin, on_output=on_output)
    async with (
        app.operating(
            operator,
            api=api,
            clock=clock,
            health=healths[0],
            watch=directwatch.DirectWatch,
            on_run=on_run,
        ) as leading,
        app.working(
            worker,
            api=api,
            clock=clock,
            health=healths[1],
            own_hosts=ownservers.own_servers(redis_url),
            audiences=tuple,
        ) as claimer,
    ):
        claiming = asyncio.create_task(claimer.run())
        running_jobs = asyncio.create_task(runner.run())
        try:
            yield Engine(api, healths, (leading, claiming, running_jobs))
        finally:
            claimer.drain()
            await asyncio.gather(claiming, return_exceptions=True)
            running_jobs.cancel()
            await asyncio.gather(running_jobs, return_exceptions=True)
