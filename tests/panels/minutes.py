"""Some minutes of an installation: Schedules of three namespaces, a set, and faults one by one.

Two operators, two workers and the HTTP API are processes with the chart's rights, on a Valkey of
their own. Everything that the dashboard shows has a reason here: receivers that refuse, a Job that
takes too long, a server that stands still and one that forgets, a worker that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duepoint.client import AsyncClient, MemberSpec
from tests.e2e.test_jobs import template
from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import CRDS, definition, install
from tests.panels import prometheus
from tests.panels.drawing import Event
from tests.panels.prometheus import Target
from tests.support import receiver
from tests.support import stack as stacks
from tests.support.controlplane import ControlPlane
from tests.support.process import ROOT, Process
from tests.support.redisserver import RedisServer
from tests.support.stack import Stack
from tools.devcluster import binaries, ports

#: What the dashboard's variable ``installation`` is.
INSTALLATION = "duepoint-system"
NAMESPACES = ("shop", "reports", "billing")
LEASE_SECONDS = 3
_RESTART_SECONDS = 2.0
_SETS = "/apis/duepoint.dev/v1alpha1/namespaces/{ns}/schedulesets/{name}"
_STATE_METRICS = ROOT / "charts" / "duepoint" / "files" / "kube-state-metrics.yaml"


@dataclass(slots=True, eq=False)
class Minutes:
    """An installation that runs.

    Attributes:
        targets: what serves metrics.
        events: faults so far.
    """

    stack: Stack
    operators: list[Process]
    workers: list[Process]
    api: Process
    targets: list[Target]
    events: list[Event] = field(default_factory=list)
    is_broken: bool = False

    async def play(self, seconds: float, say: Callable[[str], None]) -> None:
        """Let them pass, with a fault at each tenth."""
        faults = (
            self._break_receiver, self._pause_redis, self._mend_receiver, self._kill_worker,
            self._end_leader, self._empty_redis,
        )  # fmt: skip
        began = time.monotonic()
        for number, fault in enumerate(faults, 1):
            await asyncio.sleep(max(0.0, began + seconds * number / 10 - time.monotonic()))
            self.events.append(Event(time.time(), (fault.__doc__ or "").rstrip(".")))
            say(self.events[-1].what)
            await fault()
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))

    @contextlib.asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """People edit Schedules, a program edits members of a set, and what ends starts again."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(each) for each in (self._use_api(), self._edit(), self._restart())
            ]
            yield
            for task in tasks:
                task.cancel()

    async def _restart(self) -> None:
        """As a kubelet does: also a leader that ends itself on a machine that stood still."""
        while True:
            for process in (*self.operators, *self.workers, self.api):
                if process.has_ended:
                    await asyncio.sleep(_RESTART_SECONDS)
                    process.start()
            await asyncio.sleep(0.2)

    # -- faults ----------------------------------------------------------------------------------

    async def _break_receiver(self) -> None:
        """A receiver answers 503."""
        self.is_broken = True

    async def _mend_receiver(self) -> None:
        """The receiver is back."""
        self.is_broken = False

    async def _pause_redis(self) -> None:
        """Redis stands still for 8 s."""
        self.stack.redis.pause()
        await asyncio.sleep(8)
        self.stack.redis.resume()

    async def _kill_worker(self) -> None:
        """A worker is killed."""
        await self.workers[0].kill()

    async def _end_leader(self) -> None:
        """The leader is replaced."""
        for operator in self.operators:
            with contextlib.suppress(OSError):  # one that starts again does not lead
                if "duepoint_leader 1.0" in await operator.metrics():
                    await operator.drain()
                    return

    async def _empty_redis(self) -> None:
        """Redis loses everything."""
        with self.stack.redis.client() as client:
            await asyncio.to_thread(client.flushall)

    # -- load ------------------------------------------------------------------------------------

    async def furnish(self, port: int, other: int) -> None:
        """Schedules and sets; ``other`` is the port of the receiver that breaks."""
        hook = {"url": f"http://127.0.0.1:{port}/hook"}
        breaks = {
            "url": f"http://127.0.0.1:{other}/hook", "timeoutSeconds": 2,
            "retry": {"maxAttempts": 3, "initialBackoff": "500ms", "maxBackoff": "2s"},
        }  # fmt: skip
        slow = {"jobTemplate": template(seconds=8), "concurrencyPolicy": "Forbid"}
        wanted: list[tuple[str, str, dict[str, Any]]] = [
            *[("shop", f"hook-{n}", _every("1s", webhook=hook)) for n in range(12)],
            *[("billing", f"event-{n}", _every("1s", stream={"name": "events"})) for n in range(6)],
            *[("reports", f"report-{n}", _every("10s", jobTemplate=template())) for n in range(4)],
            ("reports", "slow", _every("5s", **slow)),
            ("reports", "broken", _every("15s", jobTemplate=template(outcome="fail"))),
            *[("billing", f"invoice-{n}", _every("2s", webhook=breaks)) for n in range(4)],
            ("billing", "punctual", _every("2s", webhook=breaks, startingDeadlineSeconds=1)),
            ("billing", "ledger", _every("5s", webhook={"url": "http://127.0.0.1:1/"})),
        ]  # fmt: skip
        for namespace, name, spec in wanted:
            await self.stack.apply(name, spec, namespace)
        await self._apply_set("shop", "reminders", {"webhook": hook})
        for namespace, name, _ in wanted:
            await self._wait_until_ready(f"{stacks.SCHEDULES.format(ns=namespace)}/{name}")
        await self._wait_until_ready(_SETS.format(ns="shop", name="reminders"))

    async def _apply_set(self, namespace: str, name: str, spec: dict[str, Any]) -> None:
        body = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "ScheduleSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        query = {"fieldManager": "panels", "force": "true"}
        await self.stack.api.request(
            "PATCH", _SETS.format(ns=namespace, name=name), body, query=query,
            content_type="application/apply-patch+yaml",
        )  # fmt: skip

    async def _wait_until_ready(self, path: str) -> None:
        async def is_ready() -> bool:
            found = json.loads(await self.stack.api.request("GET", path)).get("status", {})
            return any(one["type"] == "Ready" for one in found.get("conditions", ()))

        await stacks.eventually(is_ready, f"{path} has been seen")

    async def _use_api(self) -> None:
        """A program that puts members and looks at them, ten requests a second."""
        account = "program"
        await asyncio.to_thread(self.stack.roles.bind, "shop", account, "edit")
        token = self.stack.plane.service_account_token("shop", account)
        async with AsyncClient(self.stack.api_url, token=token) as client:
            reminders = client.schedule_set("shop", "reminders")
            for number in range(1_000_000):
                with contextlib.suppress(Exception):  # Redis may stand still: the next one follows
                    await reminders.put(f"order-{number % 500}", MemberSpec(delay="20s"))
                    if number % 5 == 0:
                        await reminders.get(f"order-{number % 500}")
                    if number % 50 == 0:
                        await reminders.put(f"weekly-{number}", MemberSpec(schedule="0 9 * * MON"))
                await asyncio.sleep(0.1)

    async def _edit(self) -> None:
        """Twelve Schedules are changed, one every four seconds."""
        for number in range(12):
            hook = {"url": f"http://127.0.0.1:{self.stack.receiver_port}/hook"}
            spec = _every("1s", webhook={**hook, "timeoutSeconds": 5 + number % 2})
            await self.stack.apply(f"hook-{number}", spec, "shop")
            await asyncio.sleep(4)


def _every(period: str, **spec: Any) -> dict[str, Any]:
    return {"schedule": f"@every {period}", **spec}


@contextlib.asynccontextmanager
async def running(plane: ControlPlane, folder: Path) -> AsyncIterator[Minutes]:
    """An installation with its Schedules, ready; it ends with the block."""
    await asyncio.to_thread(_install_crds, plane)
    for name in NAMESPACES:
        plane.admin().post("/api/v1/namespaces", {"metadata": {"name": name}})
    server = RedisServer("valkey", folder)
    server.start()
    try:
        async with (
            stacks.installed(plane, server, folder) as stack,
            contextlib.AsyncExitStack() as held,
        ):
            made = await _started(stack, held, folder)
            yield made
    finally:
        server.stop()
        for name in NAMESPACES:
            plane.discard_namespace(name)


def _install_crds(plane: ControlPlane) -> None:
    client = kubeapi.KubeApi(plane.kubeconfig)
    for path in CRDS:
        install(client, definition(path))
    client.close()


async def _started(stack: Stack, held: contextlib.AsyncExitStack, folder: Path) -> Minutes:
    await asyncio.to_thread(stack.install_roles, *NAMESPACES)
    watched = {"watch_namespaces": ",".join((stack.namespace, *NAMESPACES))}
    few = {"dead_letters_per_namespace": "4", "lease_seconds": str(LEASE_SECONDS)}
    operators = [stack.operator(f"operator-{number}", **watched) for number in range(2)]
    workers = [stack.worker(f"worker-{number}", **watched, **few) for number in range(2)]
    api = stack.http_api("api-0", **watched)
    for process in (*operators, *workers, api):
        await process.wait_until_ready()
    targets = [
        Target(
            url=process.http,
            labels={"namespace": INSTALLATION, "pod": process.name, "component": process.role},
        )
        for process in (*operators, *workers, api)
    ]
    targets.append(await _state_metrics(stack, held, folder))
    made = Minutes(stack, operators, workers, api, targets)
    breaks = await held.enter_async_context(receiver.listening(_breaking(made), host="0.0.0.0"))
    await made.furnish(stack.receiver_port, breaks.port)
    return made


def _breaking(made: Minutes) -> receiver.Behaviour:
    good, bad = receiver.status(204), receiver.status(503)

    def answer(request: receiver.Request, writer: asyncio.StreamWriter) -> Awaitable[None]:
        return (bad if made.is_broken else good)(request, writer)

    return answer


async def _state_metrics(stack: Stack, held: contextlib.AsyncExitStack, folder: Path) -> Target:
    """kube-state-metrics with the chart's configuration."""
    program = await asyncio.to_thread(binaries.ensure, ["kube-state-metrics"])
    port, own = ports.any_free(), ports.any_free()
    process = await prometheus.started(
        [
            program["kube-state-metrics"], f"--kubeconfig={stack.plane.kubeconfig}",
            "--custom-resource-state-only",
            f"--custom-resource-state-config-file={_STATE_METRICS}",
            f"--namespaces={','.join(NAMESPACES)}", "--host=127.0.0.1", f"--port={port}",
            "--telemetry-host=127.0.0.1", f"--telemetry-port={own}",
        ],
        folder / "kube-state-metrics.log",
    )  # fmt: skip
    held.push_async_callback(process.wait)
    held.callback(process.terminate)
    return Target(url=f"http://127.0.0.1:{port}", labels={"job": "kube-state-metrics"})
