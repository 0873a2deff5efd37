"""The API server of a history, its controllers, and each process's session to it.

The server is the product's own in memory, which passes the conformance suite of a real one. A
session adds the network in between: requests and watches take time, get lost, and end in the errors
that ``kube.api`` raises. Jobs run for as long as the history says. The cluster records everything
that was ever created.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from duepoint.kube import errors, jobs, port, schedules, times
from duepoint.kube.local import api as local
from tests.simulation.loop import Process
from tests.simulation.network import Network, Reset

ItemT = TypeVar("ItemT", bound=port.KubeObject)

NAMESPACE = "shop"
SYSTEM_NAMESPACE = "duepoint-system"

#: The garbage collector takes this long to delete an object whose owner is gone.
COLLECTED_SECONDS = 0.5


class StoredJob(msgspec.Struct, frozen=True):
    """A Job as the watch of the Job controller reads it."""

    metadata: port.Metadata
    status: dict[str, Any] = {}


@dataclass(slots=True)
class MadeJob:
    """One creation of a Job.

    Attributes:
        owner_uid, slot_us: from its owner reference and its annotation; the owner of a member's Job
        is ``SET/ID``.
        ended_us: when it finished; None = it still runs.
        gone_us: when it was deleted; None = it still exists.
    """

    name: str
    uid: str
    owner_uid: str
    slot_us: int
    at_us: int
    trigger: str
    ended_us: int | None = None
    gone_us: int | None = None


class Cluster:
    """The server with its controllers.

    Attributes:
        made: every Job that was created, in order.
        versions: every (instant, document) of each Schedule, by name; None = deleted.
    """

    def __init__(self, network: Network, now_us: Callable[[], int], *, job_seconds: float) -> None:
        self.network = network
        self.now_us = now_us
        self.server = local.LocalApi(now_us, namespaces=(NAMESPACE, SYSTEM_NAMESPACE))
        self.down_until_us = 0
        self.made: list[MadeJob] = []
        self._gone: set[str] = set()
        self._job_seconds = job_seconds

    @property
    def is_down(self) -> bool:
        return self.network.loop.now_us < self.down_until_us

    async def run_controllers(self) -> None:
        """Record each Job that is created, and finish it when its time is up."""
        by_uid: dict[str, MadeJob] = {}
        path = jobs.collection()
        async for change in self.server.watch(path, StoredJob, "0"):
            job = change.item
            if change.type is port.ChangeType.ADDED:
                made = by_uid[job.metadata.uid] = self._note(job)
                self.made.append(made)
                self.network.note("kube", f"Job {made.name} is created")
                end_us = self.network.loop.now_us + round(self._job_seconds * 1e6)
                self.network.loop.in_world_at(
                    end_us, lambda made=made: self.network.loop.spawn(self._end(made))
                )
                if any(owner.uid in self._gone for owner in job.metadata.owner_references or ()):
                    gone_us = self.network.loop.now_us + round(COLLECTED_SECONDS * 1e6)
                    self.network.loop.in_world_at(
                        gone_us, lambda made=made: self.network.loop.spawn(self._collect(made))
                    )
            elif change.type is port.ChangeType.DELETED:
                by_uid[job.metadata.uid].gone_us = self.now_us()
                self.network.note("kube", f"Job {job.metadata.name} is deleted")

    def _note(self, job: StoredJob) -> MadeJob:
        metadata = job.metadata
        owners = metadata.owner_references or []
        annotations = metadata.annotations or {}
        member = ""
        if (id_ := annotations.get("duepoint.dev/member")) is not None:
            member = f"{(metadata.labels or {})['duepoint.dev/scheduleset']}/{id_}"
        return MadeJob(
            name=metadata.name,
            uid=metadata.uid,
            owner_uid=member or (owners[0].uid if owners else ""),
            slot_us=times.parse_us(annotations["duepoint.dev/scheduled-time"]),
            at_us=self.now_us(),
            trigger=annotations.get("duepoint.dev/trigger", ""),
        )

    async def _end(self, made: MadeJob) -> None:
        now = times.time_text(self.now_us())
        done = {"type": "Complete", "status": "True", "reason": "CompletionsReached",
                "lastTransitionTime": now}  # fmt: skip
        status = {"status": {"conditions": [done], "completionTime": now, "succeeded": 1}}
        path = f"{jobs.collection(NAMESPACE)}/{made.name}"
        try:
            found = msgspec.json.decode(await self.server.request("GET", path))
            if found["metadata"]["uid"] == made.uid:
                await self.server.request(
                    "PATCH", f"{path}/status", status, content_type=port.MERGE_PATCH
                )
                made.ended_us = self.now_us()
        except errors.NotFound:
            return

    async def _collect(self, made: MadeJob) -> None:
        """Delete a Job that was created after its owner had been deleted."""
        path = f"{jobs.collection(NAMESPACE)}/{made.name}"
        found = await self.document(path)
        if found is not None and found["metadata"]["uid"] == made.uid:
            await self.server.request("DELETE", path)

    async def request(self, verb: str, path: str, body: bytes | None, **options: Any) -> bytes:
        """Carry out a process's request; every token is valid and may do anything."""
        if path.endswith("/tokenreviews"):
            return b'{"status":{"authenticated":true,"user":{"username":"a-user"}}}'
        if path.endswith("/subjectaccessreviews"):
            return b'{"status":{"allowed":true}}'
        return await self.server.request(verb, path, body, **options)

    # -- what users do -------------------------------------------------------------------------

    async def create(
        self, plural: str, kind: str, name: str, spec: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Create one of our objects."""
        body = {
            "apiVersion": schedules.API_VERSION,
            "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        path = schedules.collection(NAMESPACE, plural=plural)
        made: dict[str, Any] = msgspec.json.decode(await self.server.request("POST", path, body))
        return made

    async def patch(self, path: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a merge patch."""
        answer = await self.server.request("PATCH", path, change, content_type=port.MERGE_PATCH)
        changed: dict[str, Any] = msgspec.json.decode(answer)
        return changed

    async def delete(self, path: str, uid: str) -> None:
        """Delete one of our objects and everything that it owns."""
        await self.server.request("DELETE", path)
        self._gone.add(uid)

    async def document(self, path: str) -> dict[str, Any] | None:
        """Return the current object."""
        try:
            found: dict[str, Any] = msgspec.json.decode(await self.server.request("GET", path))
        except errors.NotFound:
            return None
        return found


class Session:
    """A ``kube.port.Api`` of one process."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster = cluster
        self._network = cluster.network
        self._process = process

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
        **options: Any,
    ) -> bytes:
        """See ``port.Api.request``."""
        loop = self._network.loop
        sent = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        attempt = f"{verb} {path}"

        def carry_out() -> asyncio.Future[bytes]:
            self._check_up(attempt)
            return loop.spawn(self._cluster.request(verb, path, sent, **options))

        try:
            async with asyncio.timeout(timeout_seconds):
                answer: bytes = await self._network.ask("kube", _short(attempt), carry_out)
        except (TimeoutError, Reset) as error:
            raise errors.Unavailable(f"{attempt}: {error or 'no answer in time'}") from error
        return answer

    async def time_us(self) -> int:
        """See ``port.TimedApi.time_us``."""
        await self.request("GET", "/api/v1/namespaces/kube-system")
        return self._cluster.now_us()

    async def list_pages(
        self,
        path: str,
        item_type: type[ItemT],
        *,
        limit: int = port.PAGE_LIMIT,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.ListPage[ItemT]]:
        """See ``port.Api.list_pages``."""
        async for page in local.pages_of(self.request, path, item_type, limit, query):
            yield page

    async def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.WatchEvent[ItemT]]:
        """See ``port.Api.watch``; like that one it reconnects by itself."""
        server = self._cluster.server
        async for change in server.watch(path, item_type, resource_version, query=query):
            while self._cluster.is_down:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(1.0)
            await asyncio.sleep(self._network.way_us() / 1e6)
            yield change

    def _check_up(self, attempt: str) -> None:
        if self._cluster.is_down:
            raise errors.from_answer(attempt, 503, {}, b"etcd is away")


def _short(attempt: str) -> str:
    return attempt.replace("/apis/duepoint.dev/v1alpha1", "").replace("/apis/batch/v1", "")
