"""``duepoint api`` as a process, with a set in our own Valkey and users of the real API server.

The process has the account and the rights that the chart gives it. Three ServiceAccounts stand for
people: ``editor`` and ``viewer`` with the chart's roles, ``stranger`` with none. Tests send
requests with ``ask``, or byte by byte with ``raw``. No operator runs: the scene stores the set's
record as the operator would.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import json
import secrets
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from duepoint.faults import FaultPoint
from duepoint.schedules.sets import setrecord, setspec
from tests.support import queueing, stack
from tests.support.chartroles import ChartRoles, wait_until_may
from tests.support.controlplane import ControlPlane
from tests.support.process import Process
from tests.support.redisserver import RedisServer, free_port

BLOB = b'{"target":{"kind":"stream","name":"ticks"}}'


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Return the code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        return str(self.json["code"])

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


@dataclasses.dataclass(slots=True, kw_only=True)
class Scene:
    """An API process with its servers and users."""

    harness: queueing.Harness
    plane: ControlPlane
    roles: ChartRoles
    namespace: str
    tokens: dict[str, str]
    process: Process
    port: int
    record: setrecord.SetRecord
    environment: Mapping[str, str]
    folder: Path

    @contextlib.asynccontextmanager
    async def another(self, dies_at: FaultPoint) -> AsyncIterator[Scene]:
        """Yield the scene with one more process, which dies at this point as by kill -9."""
        api_port = free_port()
        environment = {
            **self.environment,
            "DUEPOINT_API_PORT": str(api_port),
            "DUEPOINT_HTTP_PORT": str(free_port()),
        }
        log = self.folder / f"api-{dies_at}.log"
        process = Process(
            "api", f"api-{dies_at}", environment, log, dies_at=dies_at, is_prepared=True
        )
        process.start()
        try:
            await process.wait_until_ready()
            yield dataclasses.replace(self, process=process, port=api_port)
        finally:
            process.end()

    @property
    def base(self) -> str:
        return f"/v1/namespaces/{self.namespace}/schedulesets/{self.record.name}"

    def member(self, id_: str) -> str:
        return f"{self.base}/schedules/{id_}"

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        as_: str = "editor",
        headers: Mapping[str, str] | None = None,
        within: float = 60.0,
    ) -> Answer:
        """Send a request; a body goes as JSON unless it is bytes; empty ``as_`` sends no token."""
        return await asyncio.to_thread(
            self.ask_now, method, path, body, as_=as_, headers=headers, timeout=within
        )

    def ask_now(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        as_: str = "editor",
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = dict(headers or {})
        if as_:
            sent.setdefault("Authorization", f"Bearer {self.tokens[as_]}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        elif body is None and method == "POST":
            sent.setdefault("Content-Type", "application/json")
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())

    def raw(self, data: bytes, *, timeout: float = 60.0, end: bool = False) -> bytes:
        """Send these bytes and return all that the server answers until it closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            said = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    said += piece
            return said

    def head(self, method: str, path: str, *lines: str, as_: str = "editor") -> bytes:
        """Return the head of a request for ``raw``."""
        token = f"Authorization: Bearer {self.tokens[as_]}"
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", token, *lines, "", ""]).encode()

    async def store(self, **changes: Any) -> None:
        """Change the set's record, as an edit of its object does."""
        self.record = msgspec.structs.replace(
            self.record, generation=self.record.generation + 1, **changes
        )
        await self.harness.queue.sets.store(self.record, BLOB, queueing.EPOCH)
        await asyncio.sleep(1.1)  # until the API reads it again

    async def members(self) -> dict[str, Any]:
        """Return the members in the queue, by id."""
        found, cursor = {}, ""
        while True:
            page = await self.harness.queue.members.pages.page(self.record, cursor, limit=1_000)
            found |= {one.id: one for one in page.members}
            cursor = page.cursor
            if not cursor:
                return found


@contextlib.asynccontextmanager
async def open_scene(
    plane: ControlPlane,
    namespace: str,
    server: RedisServer,
    folder: Path,
    *,
    limits: setspec.SetLimits | None = None,
    api_server: str = "",
    **settings: str,
) -> AsyncIterator[Scene]:
    """Yield a ready API process over an index of two shards with one set.

    ``api_server``: the server that checks tokens and rights, if it is not the plane itself.
    """
    harness = await queueing.redis_harness(server.url, "dp:", shards=2)
    record = setrecord.SetRecord(
        namespace=namespace,
        name="reminders",
        uid=str(uuid.uuid4()),
        generation=1,
        state=setrecord.SetState.READY,
        spread=0,
        target=harness.queue.signed_blobs.digest(namespace, BLOB),
        settings=setspec.SetSettings(limits=limits or setspec.SetLimits()),
    )
    await harness.queue.sets.store(record, BLOB, queueing.EPOCH)
    await harness.queue.sets.mark_complete(queueing.EPOCH)
    roles = ChartRoles(plane, namespace)
    await asyncio.to_thread(roles.install, stack.rendered(namespace, namespace))
    reviews = {"group": "authentication.k8s.io", "resource": "tokenreviews"}
    await asyncio.to_thread(wait_until_may, plane, namespace, roles.account, "create", **reviews)
    login = plane.service_account_kubeconfig(namespace, roles.account, folder)
    if api_server:
        login.write_text(login.read_text().replace(plane.server, api_server))
    key = folder / "blob-key"
    key.write_bytes(queueing.BLOB_KEY)
    port = free_port()
    chosen = {
        "redis_url": server.url_of("api"),
        "KUBECONFIG": str(login),
        "namespace": namespace,
        "identity": "api",
        "blob_key_file": str(key),
        "listen_address": "127.0.0.1",
        "http_port": str(free_port()),
        "api_port": str(port),
        "tls_cert_file": "none",
        "grace_seconds": "5",
        **settings,
    }
    environment = {
        name if name.isupper() else f"DUEPOINT_{name.upper()}": value
        for name, value in chosen.items()
    }
    log = folder / f"api-{secrets.token_hex(4)}.log"
    process = Process("api", "api", environment, log, is_prepared=True)
    process.start()
    names = ("editor", "viewer", "stranger")
    tokens = {name: plane.service_account_token(namespace, name) for name in names}
    try:
        await asyncio.to_thread(roles.bind, namespace, "editor", "edit")
        await asyncio.to_thread(roles.bind, namespace, "viewer", "view")
        await process.wait_until_ready()
        yield Scene(
            harness=harness, plane=plane, roles=roles, namespace=namespace, tokens=tokens,
            process=process, port=port, record=record, environment=environment, folder=folder,
        )  # fmt: skip
    finally:
        process.end()
        roles.remove()
        await harness.close()
