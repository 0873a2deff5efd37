"""The installation and the control plane that bursts, many Schedules and restarts share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from benchmarks import scene
from benchmarks.kube import loads, plane
from benchmarks.kube.audit import Audit, Request
from duepoint.kube import port
from tests.support.stack import SCHEDULES, Process, Stack

TEMPLATE = {
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
            }
        },
    }
}
QUIET_SECONDS = 5
_BUSY_PERCENT = 10.0
_LIMIT_SECONDS = 1_200.0


class Listed(msgspec.Struct, frozen=True):
    metadata: port.Metadata


@dataclass(frozen=True)
class Scene:
    """The measured installation; ``namespaces``: one for each other actor of a burst."""

    stack: Stack
    plane: plane.Plane
    audit: Audit
    namespaces: dict[str, str]

    def metered(
        self, *processes: Process
    ) -> contextlib.AbstractAsyncContextManager[dict[str, scene.Use]]:
        """Measure the control plane and these processes within the context."""
        pids = {"API server": self.plane.api_server.pid, "etcd": self.plane.etcd_pid}
        pids |= {process.name: process.pid for process in processes}
        return scene.metered(
            pids, {process.name: f"{process.http}/healthz" for process in processes}
        )

    async def create(self, prefix: str, count: int, schedule: str = "H H 1 1 *") -> float:
        """Create Schedules of Jobs; return the seconds. By default they are due in January."""
        thing = {
            "apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule",
            "metadata": {"name": "@NAME@", "namespace": self.stack.namespace},
            "spec": {"schedule": schedule, "jobTemplate": TEMPLATE},
        }  # fmt: skip
        path = SCHEDULES.format(ns=self.stack.namespace)
        sent = await loads.send(self.stack.plane, path, thing, count=count, prefix=prefix)
        return sent.seconds

    async def clear(self, collection: str, namespace: str = "") -> None:
        path = collection.format(ns=namespace or self.stack.namespace)
        query = {"propagationPolicy": "Background"}
        await self.stack.api.request("DELETE", path, query=query, timeout_seconds=300)

    async def uids(self, collection: str = SCHEDULES) -> list[tuple[str, str]]:
        """Return name and uid of each object of the collection."""
        path = collection.format(ns=self.stack.namespace)
        pages = self.stack.api.list_pages(path, Listed, query={"resourceVersion": "0"})
        return [(one.metadata.name, one.metadata.uid) async for page in pages for one in page.items]

    def armed(self) -> int:
        """Return the number of Schedules whose next slot is in Redis."""
        with self.stack.redis.client() as client:
            pipeline = client.pipeline(transaction=False)
            for key in client.scan_iter(match="dp:*:points:*", count=1000):
                pipeline.zcount(key, "-inf", "(+inf")  # a sentinel keeps an empty lane alive
            return int(sum(pipeline.execute()))

    async def until_armed(self, count: int, operator: Process, *, stays: bool = False) -> float:
        """Return when Redis first had exactly so many points; ``stays``: for good, not once."""
        first, deadline = 0.0, time.monotonic() + _LIMIT_SECONDS
        while time.monotonic() < deadline:
            if await asyncio.to_thread(self.armed) != count:
                first = 0.0
            elif not first:
                first = time.monotonic()
            if first and (not stays or time.monotonic() - first > QUIET_SECONDS):
                return first
            if operator.has_ended:
                raise RuntimeError(f"{operator.name} has ended; see {operator.log}")
            await asyncio.sleep(0.1)
        raise RuntimeError(f"{count} points were not armed within {_LIMIT_SECONDS:g} s")

    async def until_settled(self, operator: Process) -> list[Request]:
        """Collect the requests until our processes write no more and the operator rests."""
        requests: list[Request] = []
        quiet, deadline = 0.0, time.monotonic() + _LIMIT_SECONDS
        while quiet < QUIET_SECONDS and time.monotonic() < deadline:
            used = scene.cpu_seconds(operator.pid)
            await asyncio.sleep(1)
            new = self.audit.new()
            requests += new
            busy = (scene.cpu_seconds(operator.pid) - used) * 100 > _BUSY_PERCENT
            writes = any(one.is_ours and one.is_write for one in new)
            quiet = 0.0 if busy or writes else quiet + 1
        return requests


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Scene]:
    """Yield an installation without processes, on a control plane with an audit log."""
    async with scene.stack() as stack:
        # Now, while controllers still run: they give each namespace its ServiceAccount.
        actors = ("bare", "raised", "default")
        namespaces = {actor: stack.plane.create_namespace(actor) for actor in actors}
        async with plane.opened(stack.plane) as opened_plane:
            yield Scene(stack, opened_plane, Audit(opened_plane.audit_log), namespaces)
