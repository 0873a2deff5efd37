"""An operator's term on a real API server and a real Valkey, in one namespace of its own.

It logs in as a ServiceAccount with no more rights than the operator has in the chart, bound in that
namespace, so that a right that is missing fails here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from duepoint import services, settings
from duepoint.clock import SystemClock
from duepoint.controller.leadership import Leadership
from duepoint.controller.watching import kopfthread
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue import errors as queue_errors
from duepoint.election.elector import Epoch, Term
from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, schedules
from duepoint.kube import errors as kube_errors
from duepoint.schedules.definition import Definition
from tests.support import queueing, serverclient
from tests.support.controlplane import ControlPlane
from tests.support.redisserver import RedisServer
from tests.support.servedcrds import duepoint_plane

__all__ = ["duepoint_plane"]

BLOB_KEY = b"a key of thirty-two bytes, really"
SHARDS = 4
RULES = [
    {
        "apiGroups": ["duepoint.dev"],
        "resources": ["schedules", "scheduleruns", "schedulesets"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": ["duepoint.dev"], "resources": ["schedulesets"], "verbs": ["patch"]},
    {
        "apiGroups": ["duepoint.dev"],
        "resources": ["schedules/status", "scheduleruns/status", "schedulesets/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["list", "watch", "create", "delete"],
    },
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "list"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
]


class Installation:
    """One namespace, one queue; ``leading`` runs an operator's term over both."""

    def __init__(
        self, plane: ControlPlane, namespace: str, server: RedisServer, prefix: str, account: Path
    ) -> None:
        self.namespace = namespace
        self.health = services.Health()
        self._server = server
        self._prefix = prefix
        self._account = credentials.of_kubeconfig(account)
        self._epoch = 0
        self.lease_notes: dict[str, str] = {}
        self.user = kubeapi.ApiSession(
            credentials.of_kubeconfig(plane.kubeconfig), component="test"
        )
        self.servers = queueing.connections_to(server.url)
        self.queue = queueing.a_queue(server.url, prefix, opened=self.servers)
        self.server = serverclient.ServerClient(server.url, prefix)
        self.leadership: Leadership | None = None

    def a_queue(self) -> delayqueue.DelayQueue:
        return queueing.a_queue(self._server.url, self._prefix)

    def _operators_queue(self) -> delayqueue.DelayQueue:
        url = self._server.url_of("operator")
        return delayqueue.connect(url, blob_key=BLOB_KEY, prefix=self._prefix)

    def empty_redis(self) -> None:
        """Delete the whole index at once, as FLUSHALL does: of a part the operator reads a loss."""
        with self._server.client() as client:
            if keys := list(client.scan_iter(match=f"{self._prefix}*", count=1000)):
                client.delete(*keys)

    @contextlib.asynccontextmanager
    async def leading(self, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
        changes.setdefault("shards", SHARDS)
        self._epoch += 1
        queue = self._operators_queue()
        await queue.start()
        self.api = kubeapi.ApiSession(self._account, component="operator")
        chosen = settings.OperatorSettings(
            redis_url=self._server.url,
            blob_key_file=Path("unused"),
            identity="operator-0",
            namespace=self.namespace,
            **{"watch_namespaces": (self.namespace,), **changes},
        )
        async with self.api:
            leadership = Leadership(
                settings=chosen,
                api=self.api,
                queue=queue,
                watch=functools.partial(kopfthread.watch, credentials=self._account),
                clock=SystemClock(),
                health=self.health,
            )
            term = Term(Epoch(self._epoch), dict(self.lease_notes), time.monotonic)
            term.notes = self.lease_notes
            term.trust_until(math.inf)
            work = asyncio.create_task(leadership.work(term))
            try:
                yield work
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                await queue.close()

    # -- what users do -------------------------------------------------------------------------

    async def create(self, name: str = "nightly", **fields: Any) -> dict[str, Any]:
        spec = {"schedule": "0 0 1 1 *", **fields}
        if not {"webhook", "jobTemplate", "stream"} & spec.keys():
            spec["webhook"] = {"url": "https://hooks.example.com/x"}
        body = {
            "apiVersion": schedules.API_VERSION,
            "kind": schedules.KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
        path = schedules.collection(self.namespace)
        return json.loads(await self.user.request("POST", path, body))

    async def edit(self, name: str = "nightly", **fields: Any) -> dict[str, Any]:
        path = schedules.path(self.namespace, name)
        answer = await self.user.request(
            "PATCH", path, {"spec": fields}, content_type="application/merge-patch+json"
        )
        return json.loads(answer)

    async def delete(self, name: str = "nightly") -> None:
        await self.user.request("DELETE", schedules.path(self.namespace, name))

    async def object(self, name: str = "nightly") -> dict[str, Any]:
        path = schedules.path(self.namespace, name)
        return json.loads(await self.user.request("GET", path))

    # -- what users see ------------------------------------------------------------------------

    async def until(
        self, holds: Callable[[dict[str, Any]], bool], name: str = "nightly", seconds: float = 60
    ) -> dict[str, Any]:
        """The status once it holds."""
        deadline = time.monotonic() + seconds
        while True:
            status = (await self.object(name)).get("status", {})
            if holds(status):
                return status
            assert time.monotonic() < deadline, f"the status is still {status}"
            await asyncio.sleep(0.02)

    async def until_told(self, reason: str, seconds: float = 60) -> dict[str, Any]:
        """The first Event of that reason."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        deadline = time.monotonic() + seconds
        while True:
            listed = json.loads(await self.user.request("GET", path))["items"]
            for event in listed:
                if event["reason"] == reason:
                    return event
            assert time.monotonic() < deadline, [event["reason"] for event in listed]
            await asyncio.sleep(0.05)

    async def until_ready(self, generation: int, name: str = "nightly") -> dict[str, Any]:
        def holds(status: dict[str, Any]) -> bool:
            ready = condition(status, "Ready") or {}
            return status.get("observedGeneration") == generation and ready.get("status") == "True"

        return await self.until(holds, name)

    async def definitions(self) -> dict[str, Definition]:
        """What the queue holds, by name."""
        layout = await self.queue.layouts.read()
        found = {}
        for number in range(layout.shards):
            shard = messages.ShardId(number)
            async for stored in queueing.stored(self.queue, shard):
                definition = await self.queue.definitions.definition(stored.id)
                if definition is not None:
                    found[stored.name] = definition
        return found

    async def until_held(self, *names: str, seconds: float = 60) -> dict[str, Definition]:
        deadline = time.monotonic() + seconds
        found: dict[str, Definition] = {}
        while True:
            with contextlib.suppress(queue_errors.Uninitialised):
                found = await self.definitions()
            if found.keys() == set(names):
                return found
            assert time.monotonic() < deadline, f"the queue holds {sorted(found)}"
            await asyncio.sleep(0.02)


def condition(status: dict[str, Any], type_: str) -> dict[str, Any] | None:
    return next((one for one in status.get("conditions", []) if one["type"] == type_), None)


@pytest.fixture
async def installation(
    duepoint_plane: ControlPlane,
    kube_namespace: str,
    valkey: RedisServer,
    key_prefix: str,
    tmp_path: Path,
) -> AsyncIterator[Installation]:
    account = duepoint_plane.service_account_kubeconfig(kube_namespace, "operator", tmp_path)
    made = Installation(duepoint_plane, kube_namespace, valkey, key_prefix, account)
    await made.queue.start()
    async with made.user:
        await _bind(made.user, kube_namespace)
        yield made
    await made.queue.close()
    await made.server.close()


@pytest.fixture
def another_installation(
    duepoint_plane: ControlPlane,
    kube_namespace: str,
    valkey: RedisServer,
    key_prefix: str,
    tmp_path: Path,
) -> Installation:
    """A second one over the same Schedules, which fills an index of its own."""
    account = duepoint_plane.service_account_kubeconfig(kube_namespace, "operator", tmp_path)
    return Installation(duepoint_plane, kube_namespace, valkey, f"{key_prefix}x:", account)


async def _bind(user: kubeapi.ApiSession, namespace: str) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    role = {"metadata": {"name": "operator"}, "rules": RULES}
    binding = {
        "metadata": {"name": "operator"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": "operator",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }
    for resource, body in (("roles", role), ("rolebindings", binding)):
        with contextlib.suppress(kube_errors.Conflict):
            await user.request("POST", f"{rbac}/{resource}", body)


@pytest.fixture(autouse=True)
def logged():
    with structlog.testing.capture_logs() as lines:
        yield lines
