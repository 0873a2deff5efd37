"""The installation that the pages describe, with the objects of their examples.

An operator, a worker and the HTTP API run with the chart's rights. They watch four namespaces,
which the pages call ``team-a``, ``shop``, ``reports`` and ``default``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

from duepoint.client import AsyncClient, MemberSpec
from tests.e2e.test_jobs import template
from tests.support import receiver
from tests.support import stack as stacks
from tests.support.controlplane import ControlPlane
from tests.support.process import Process
from tests.support.redisserver import RedisServer
from tests.support.stack import Stack

#: Namespaces of the pages; a command without ``-n`` uses the last.
NAMESPACES = ("team-a", "shop", "reports", "default")
_SETS = "/apis/duepoint.dev/v1alpha1/namespaces/{ns}/schedulesets/{name}"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ACCOUNT = "pages"


class Scene:
    """The installation.

    Attributes:
        namespaces: name on the pages -> name in the cluster.
        processes: operator, worker and api.
        token: that of a person with the chart's role ``edit`` in these namespaces.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        own = {name: stack.plane.create_namespace(f"pages-{name}") for name in NAMESPACES[:-1]}
        self.namespaces = {**own, "default": stack.namespace}
        self.processes: dict[str, Process] = {}
        self.token = ""

    async def start(self) -> None:
        others = [name for name in self.namespaces.values() if name != self.stack.namespace]
        await asyncio.to_thread(self.stack.install_roles, *others)
        watched = {"watch_namespaces": ",".join(self.namespaces.values())}
        self.processes = {
            "operator": self.stack.operator(**watched),
            "worker": self.stack.worker(**watched),
            "api": self.stack.http_api(**watched),
        }
        for process in self.processes.values():
            await process.wait_until_ready()
        for name in self.namespaces.values():
            self._give_edit(name)
        self.token = self.stack.plane.service_account_token(self.stack.namespace, _ACCOUNT)
        await self.furnish()

    def _give_edit(self, namespace: str) -> None:
        subject = {
            "kind": "ServiceAccount", "name": _ACCOUNT, "namespace": self.stack.namespace,
        }  # fmt: skip
        role = {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": self.stack.roles.name_of("duepoint-edit"),
        }  # fmt: skip
        path = f"{_RBAC}/namespaces/{namespace}/rolebindings"
        body = {"metadata": {"name": _ACCOUNT}, "roleRef": role, "subjects": [subject]}
        self.stack.plane.admin().post(path, body)

    async def revive(self) -> bool:
        """Restart ended processes, as a kubelet does; return False if all were running.

        An operator ends if a stalled machine keeps it from renewing its Lease in time.
        """
        ended = [process for process in self.processes.values() if process.has_ended]
        for process in ended:
            process.start()
            await process.wait_until_ready()
        return bool(ended)

    # -- objects ---------------------------------------------------------------------------------

    async def furnish(self) -> None:
        """Create or restore the objects of the pages; a page may have changed them."""
        job = {"schedule": "30 2 * * *", "suspend": False, "jobTemplate": template()}
        hook = {"schedule": "0 2 * * *", "suspend": False, "webhook": self.stack.webhook()}
        wanted = [
            ("team-a", "report", job), ("default", "report", job), ("default", "sync", job),
            ("reports", "nightly-report", job), ("shop", "nightly", hook),
        ]  # fmt: skip
        for place, name, spec in wanted:
            await self.stack.apply(name, spec, self.namespaces[place])
        sets = [
            ("team-a", "customers"), ("shop", "reminders"), ("default", "reminders"),
            ("default", "unpaid-orders"),
        ]  # fmt: skip
        for place, name in sets:
            await self._apply_set(place, name, suspend=False)
        await self._apply_set("shop", "reminders-test", suspend=True)
        async with AsyncClient(self.stack.api_url, token=self.token) as client:
            for place, name in sets:
                members = client.schedule_set(self.namespaces[place], name)
                await members.put("order-17", MemberSpec(delay="30m"))

    async def _apply_set(self, place: str, name: str, *, suspend: bool) -> None:
        body = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "ScheduleSet",
            "metadata": {"name": name, "namespace": self.namespaces[place]},
            "spec": {"suspend": suspend, "webhook": self.stack.webhook()},
        }
        path = _SETS.format(ns=self.namespaces[place], name=name)
        await self.stack.api.request(
            "PATCH", path, body, query={"fieldManager": "e2e", "force": "true"},
            content_type="application/apply-patch+yaml",
        )  # fmt: skip

        async def is_ready() -> bool:
            found = json.loads(await self.stack.api.request("GET", path)).get("status", {})
            conditions = {one["type"]: one["status"] for one in found.get("conditions", ())}
            return conditions.get("Ready") == "True"

        await stacks.eventually(is_ready, f"the set {name} is ready")

    async def give_up_a_webhook(self) -> None:
        """Create a Schedule in ``team-a`` whose only slot is given up because nobody answers."""
        spec = {
            "schedule": "@every 1s",
            "maxRuns": 1,
            "webhook": {"url": "http://127.0.0.1:1/", "retry": {"maxAttempts": 1}},
        }
        name = f"given-up-{time.monotonic_ns()}"
        await self.stack.apply(name, spec, self.namespaces["team-a"])

    def another_system(self) -> str:
        """Return a namespace for another installation; it is deleted with this one's."""
        name = f"{self.stack.system}-{time.monotonic_ns()}"
        self.namespaces[name] = name
        return name

    def end(self) -> None:
        for name in self.namespaces.values():
            self.stack.plane.discard_namespace(name)


@contextlib.asynccontextmanager
async def installed(plane: ControlPlane, server: RedisServer, folder: Path) -> AsyncIterator[Scene]:
    async with stacks.installed(plane, server, folder, are_prepared=True) as stack:
        stack.answer = receiver.status(204)
        scene = Scene(stack)
        try:
            await scene.start()
            yield scene
        finally:
            scene.end()
