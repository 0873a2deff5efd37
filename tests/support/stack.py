"""A whole installation for tests: operators and workers as processes, with the chart's own rights.

A Stack has its own Valkey, a namespace for the installation and one for Schedules, and a webhook
receiver in this process that records when each request arrived. Operators and workers log in with
tokens of the chart's ServiceAccounts, so that a right that the chart forgets is missing here.
Processes can be killed, paused and drained. Tests wait for facts: a watch of the API server, a
request at the receiver, a line of readiness.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from duepoint.faults import FaultPoint
from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, errors, port
from tests.support import receiver, waiting
from tests.support.chartroles import ChartRoles
from tests.support.controlplane import ControlPlane
from tests.support.process import ROOT, Process
from tests.support.redisserver import RedisServer, free_port
from tests.support.waiting import eventually
from tools.devcluster import binaries

#: A folder that gives a process a wrong clock when it is on the process's path.
WRONG_CLOCK = Path(__file__).resolve().parent / "wrongclock"
COMPONENT = "app.kubernetes.io/component"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts/{name}",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/{name}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings/{name}",
}
#: Cluster-wide objects, which the chart names after the namespace of its release.
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = {
    "ValidatingAdmissionPolicy": _ADMISSION + "/validatingadmissionpolicies/{name}",
    "ValidatingAdmissionPolicyBinding": _ADMISSION + "/validatingadmissionpolicybindings/{name}",
}
SCHEDULES = "/apis/duepoint.dev/v1alpha1/namespaces/{ns}/schedules"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
LONGEST_WAIT_SECONDS = waiting.LONGEST_SECONDS

Object = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One request at the receiver."""

    arrived_us: int
    path: str
    webhook_id: str
    body: Object

    @property
    def slot(self) -> str:
        return str(self.body["data"]["scheduled_time"])

    @property
    def schedule(self) -> str:
        return str(self.body["data"]["schedule"]["name"])


class Stack:
    """An installation; make one with ``installed``."""

    def __init__(
        self,
        plane: ControlPlane,
        redis: RedisServer,
        folder: Path,
        api: kubeapi.ApiSession,
        *,
        are_prepared: bool,
    ) -> None:
        self._are_prepared = are_prepared
        self.plane = plane
        self.redis = redis
        self.folder = folder
        self.api = api
        self.namespace = plane.create_namespace("e2e")
        self.system = plane.create_namespace("e2e-system")
        self.deliveries: list[Delivery] = []
        self.answer: receiver.Behaviour = receiver.status(204)
        self.receiver_port = 0
        self.api_url = ""
        self._arrived = asyncio.Condition()
        self._key = folder / "blob-key"
        self._key.write_bytes(secrets.token_bytes(32))
        self._processes: list[Process] = []
        self._policies: list[str] = []
        self._accounts: dict[str, str] = {}
        self.roles = ChartRoles(plane, self.system)

    # -- processes -----------------------------------------------------------------------------

    def operator(
        self,
        name: str = "operator",
        *,
        off: float = 0.0,
        prefix: Sequence[str] = (),
        dies_at: FaultPoint | None = None,
        **settings: str,
    ) -> Process:
        """Start an operator; its clock is off by these seconds, and it dies at ``dies_at``."""
        return self._start("operator", name, settings, off, prefix, dies_at)

    def worker(
        self,
        name: str = "worker",
        *,
        off: float = 0.0,
        prefix: Sequence[str] = (),
        dies_at: FaultPoint | None = None,
        **settings: str,
    ) -> Process:
        """Start a worker; it may call the receiver and no other loopback address.

        Args:
            prefix: a command that runs the process, such as ``unshare``.
            dies_at: the fault point at which it dies, as by kill -9.
        """
        allowed = {"egress_allowed_cidrs": "127.0.0.1/32"}
        return self._start("worker", name, {**allowed, **settings}, off, prefix, dies_at)

    def http_api(
        self, name: str = "api", *, prefix: Sequence[str] = (), **settings: str
    ) -> Process:
        """Start an HTTP API without TLS; its URL is ``api_url``."""
        port = free_port()
        self.api_url = f"http://127.0.0.1:{port}"
        chosen = {
            "api_port": str(port),
            "tls_cert_file": "none",
        }
        return self._start("api", name, {**chosen, **settings}, 0.0, prefix)

    async def member_token(self) -> str:
        """Return a token of an account with the chart's role ``edit`` in the namespace."""
        await asyncio.to_thread(self.roles.bind, self.namespace, "editor", "edit")
        return self.plane.service_account_token(self.namespace, "editor")

    async def running(self) -> tuple[Process, Process]:
        """Start an operator and a worker, and return them once both are ready."""
        operator, worker = self.operator(), self.worker()
        await operator.wait_until_ready()
        await worker.wait_until_ready()
        return operator, worker

    def _start(
        self,
        role: str,
        name: str,
        settings: Mapping[str, str],
        off: float,
        prefix: Sequence[str] = (),
        dies_at: FaultPoint | None = None,
    ) -> Process:
        login = settings.get("KUBECONFIG") or self.login(role)
        chosen = {
            "redis_url": settings.get("redis_url") or self.redis.url_of(role),
            "KUBECONFIG": str(login),
            "namespace": self.system,
            "watch_namespaces": self.namespace,
            "identity": name,
            "blob_key_file": str(self._key),
            "listen_address": "127.0.0.1",
            "http_port": str(free_port()),
            **settings,
        }
        environment = {  # names in capitals are variables, not settings of ours
            key if key.isupper() else f"DUEPOINT_{key.upper()}": value
            for key, value in chosen.items()
        }
        if off:
            environment["PYTHONPATH"] = str(WRONG_CLOCK)
            environment["WRONG_CLOCK_SECONDS"] = str(off)
        is_prepared = self._are_prepared and not prefix and not off  # Python reads the clock early
        log = self.folder / f"{name}.log"
        process = Process(role, name, environment, log, prefix, dies_at, is_prepared=is_prepared)
        self._processes.append(process)
        process.start()
        return process

    def login(self, role: str, server: str | None = None) -> Path:
        """Return a kubeconfig of the chart's account for a role, with another server if given."""
        account = self._accounts[role]
        folder = self.folder / (server or "direct").rpartition(":")[2]
        folder.mkdir(exist_ok=True)
        login = self.plane.service_account_kubeconfig(self.system, account, folder)
        if server is not None:
            login.write_text(login.read_text().replace(self.plane.server, server))
        return login

    # -- objects -------------------------------------------------------------------------------

    async def apply(self, name: str, spec: Object, namespace: str | None = None) -> Object:
        """Apply a Schedule on the server side."""
        where = namespace or self.namespace
        body = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "Schedule",
            "metadata": {"name": name, "namespace": where},
            "spec": spec,
        }
        answer = await self.api.request(
            "PATCH",
            f"{SCHEDULES.format(ns=where)}/{name}",
            body,
            query={"fieldManager": "e2e", "force": "true"},
            content_type="application/apply-patch+yaml",
        )
        return self._decoded(answer)

    async def delete(self, name: str) -> None:
        await self.api.request("DELETE", f"{self._schedules}/{name}")

    async def schedule(self, name: str) -> Object:
        return self._decoded(await self.api.request("GET", f"{self._schedules}/{name}"))

    async def lease(self) -> Object:
        """Return the spec of the operators' Lease, once one of them holds it.

        An operator is ready before it leads, so right after its start there may be no Lease yet.
        """
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.system}/leases/duepoint-operator"
        spec: Object = {}

        async def is_held() -> bool:
            with contextlib.suppress(errors.NotFound):
                spec.update(self._decoded(await self.api.request("GET", path))["spec"])
            return bool(spec.get("holderIdentity"))

        await eventually(is_held, "an operator holds the Lease")
        return spec

    async def jobs(self, schedule: str | None = None) -> list[Object]:
        answer = self._decoded(await self.api.request("GET", JOBS.format(ns=self.namespace)))
        return [
            job
            for job in answer["items"]
            if schedule in (None, job["metadata"].get("labels", {}).get("duepoint.dev/schedule"))
        ]

    @property
    def _schedules(self) -> str:
        return SCHEDULES.format(ns=self.namespace)

    @staticmethod
    def _decoded(body: bytes) -> Object:
        decoded: Object = json.loads(body)
        return decoded

    # -- facts to wait for -----------------------------------------------------------------------

    async def wait_until_ready(self, name: str, generation: int = 1) -> Object:
        """Wait until Ready is True for this generation, and return the Schedule."""
        return await self.wait_for_condition(name, "Ready", generation)

    async def wait_for_condition(self, name: str, kind: str, generation: int = 1) -> Object:
        def holds(found: Object) -> bool:
            status = found.get("status", {})
            conditions = {one["type"]: one for one in status.get("conditions", ())}
            condition = conditions.get(kind, {})
            return (
                condition.get("status") == "True"
                and condition.get("observedGeneration") == generation
                and status.get("observedGeneration") == generation
            )

        return await self.wait_for_schedule(name, holds, f"{kind} at generation {generation}")

    async def wait_for_schedule(
        self, name: str, holds: Callable[[Object], bool], what: str
    ) -> Object:
        """Watch a Schedule until it is so, and return it."""
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                return await self._watched(self._schedules, name, holds)
        except TimeoutError:
            last = await self.schedule(name)
            raise TimeoutError(f"{name}: {what} in vain; {last.get('status')}") from None

    async def wait_for_job(self, schedule: str, count: int = 1) -> list[Object]:
        """Wait until a Schedule has this many Jobs, and return them."""

        found: list[Object] = []

        async def enough() -> bool:
            found[:] = await self.jobs(schedule)
            return len(found) >= count

        await eventually(enough, f"{count} Jobs of {schedule}")
        return found

    async def wait_for_deliveries(self, count: int, schedule: str | None = None) -> list[Delivery]:
        """Wait for this many deliveries and return them."""
        async with asyncio.timeout(LONGEST_WAIT_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: len(self.delivered(schedule)) >= count)
        return self.delivered(schedule)

    def delivered(self, schedule: str | None = None) -> list[Delivery]:
        return [one for one in self.deliveries if schedule in (None, one.schedule)]

    def webhook(self, path: str = "/hook", **fields: Any) -> Object:
        """Return a webhook to the receiver."""
        return {"url": f"http://127.0.0.1:{self.receiver_port}{path}", **fields}

    async def _watched(self, collection: str, name: str, holds: Callable[[Object], bool]) -> Object:
        query = {"fieldSelector": f"metadata.name={name}"}
        while True:
            listed = self._decoded(await self.api.request("GET", collection, query=query))
            for item in listed["items"]:
                if holds(item):
                    return dict(item)
            version = listed["metadata"]["resourceVersion"]
            with contextlib.suppress(errors.Gone):  # the version is too old to watch from
                async for change in self.api.watch(collection, _Any, version, query=query):
                    found = {"metadata": {}, "status": change.item.status, "spec": change.item.spec}
                    if holds(found):
                        return await self.schedule(name)

    # -- life ------------------------------------------------------------------------------------

    def install_roles(self, *others: str) -> None:
        """Install the chart's accounts and roles for this namespace, and for others if given.

        It may be repeated; processes need ``watch_namespaces`` to name the others, too.
        """
        admin = self.plane.admin()
        objects = rendered(self.system, ",".join((self.namespace, *others)))
        self.roles.install(objects)
        for one in objects:
            if one["kind"] not in PATHS and one["kind"] not in POLICIES:
                continue
            metadata = one["metadata"]
            if one["kind"] in POLICIES:
                path = POLICIES[one["kind"]].format(name=metadata["name"])
                if path not in self._policies:
                    self._policies.append(path)
                admin.apply(path, one)
                continue
            space = metadata.setdefault("namespace", self.system)
            admin.apply(PATHS[one["kind"]].format(ns=space, name=metadata["name"]), one)
            if one["kind"] == "ServiceAccount":
                self._accounts[metadata["labels"][COMPONENT]] = metadata["name"]

    def install_roles_for(self, namespace: str) -> None:
        """Give the same accounts the same rights in another namespace."""
        admin = self.plane.admin()
        for one in rendered(self.system, namespace):
            metadata = one["metadata"]
            if one["kind"] in PATHS and metadata.get("namespace") == namespace:
                path = PATHS[one["kind"]].format(ns=namespace, name=metadata["name"])
                admin.apply(path, one)

    async def receive(self, request: receiver.Request, writer: asyncio.StreamWriter) -> None:
        arrived_us = time.time_ns() // 1000
        async with self._arrived:
            self.deliveries.append(
                Delivery(
                    arrived_us=arrived_us,
                    path=request.target,
                    webhook_id=request.header("webhook-id") or "",
                    body=json.loads(request.body or b"{}"),
                )
            )
            self._arrived.notify_all()
        await self.answer(request, writer)

    def end(self) -> None:
        for process in self._processes:
            process.end()
        for path in self._policies:  # cluster-wide, so they do not go with a namespace
            self.plane.admin().delete(path)
        self.roles.remove()
        for namespace in (self.namespace, self.system):
            self.plane.discard_namespace(namespace)


class _Any(msgspec.Struct, frozen=True):
    """A Schedule as the API server sends it."""

    metadata: port.Metadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


@functools.cache
def helm() -> str:
    ready = os.environ.get("DUEPOINT_TEST_HELM")
    return ready or str(binaries.ensure(["helm"])["helm"])


def rendered(system: str, namespace: str) -> list[Object]:
    """Return the chart's objects for an installation that watches these namespaces (a,b,c).

    Helm runs once in a process for each number of namespaces, with placeholders for the names.
    """
    names = list(dict.fromkeys((system, *namespace.split(","))))
    stand_ins = {name: f"stand-in-{number}-of-a-test" for number, name in enumerate(names)}
    watched = ",".join(stand_ins[name] for name in namespace.split(","))
    text = template_text(stand_ins[system], watched)
    for name, stand_in in stand_ins.items():
        text = text.replace(stand_in, name)
    found: list[Object] = json.loads(text)
    return found


@functools.cache
def template_text(system: str, namespace: str) -> str:
    """Return the same as JSON, for names of any kind."""
    done = subprocess.run(
        [
            helm(), "template", "duepoint", str(ROOT / "charts" / "duepoint"),
            "--namespace", system, "--kube-version", "v1.36.0",
            "--set", "crds.enabled=false", "--set", "redis.url=redis://elsewhere:6379/0",
            "--set", f"watchNamespaces={{{namespace}}}",
            "--set", "blobKey.existingSecret=not-rendered",
            "--set", "api.enabled=true,api.tls.enabled=false",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    objects = yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)
    return json.dumps([one for one in objects if one])


@contextlib.asynccontextmanager
async def installed(
    plane: ControlPlane, redis: RedisServer, folder: Path, *, are_prepared: bool = False
) -> AsyncIterator[Stack]:
    """Yield a Stack without processes; everything it starts ends with it.

    ``are_prepared``: its processes start with everything imported (``tests.support.process``).
    """
    access = credentials.of_kubeconfig(plane.kubeconfig)
    async with kubeapi.ApiSession(access, component="e2e") as api:
        stack = Stack(plane, redis, folder, api, are_prepared=are_prepared)
        try:
            await asyncio.to_thread(stack.install_roles)
            async with receiver.listening(stack.receive, host="0.0.0.0") as listening:
                stack.receiver_port = listening.port
                yield stack
        finally:
            stack.end()
