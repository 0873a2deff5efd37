"""The Redis of a run and its faults; ``replicated`` has a cluster and Sentinel.

Each operation blocks, and returns evidence that it had an effect.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Mapping
from pathlib import Path

import redis

from tests.chaos.plan import FaultKind
from tests.support.redisserver import RedisServer

_TAIL_BYTES = 60_000
_TIMEOUT_SECONDS = 2.0


#: The server writes before each answer (``no`` never delays a write, as ``everysec`` may), so a
#: kill loses nothing; for the loss at a power cut, a fault truncates the file.
APPENDING = (
    "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0",
)  # fmt: skip

#: The faults that every set-up can have.
USUAL = frozenset(
    {
        FaultKind.REDIS_RESTART, FaultKind.REDIS_TAIL_LOST, FaultKind.REDIS_STOPPED,
        FaultKind.REDIS_FLUSHED, FaultKind.REDIS_FULL, FaultKind.SCRIPTS_FLUSHED,
        FaultKind.CLIENTS_KILLED,
    }
)  # fmt: skip


class RedisSetup(abc.ABC):
    """Attributes:
    kinds: the kinds of faults that it can have.
    forgets: those after which it may have lost confirmed writes.
    skipped: kinds of faults that are not possible, and why.
    settings: those that each process needs besides its URL.
    """

    kinds = USUAL
    forgets = frozenset({FaultKind.REDIS_TAIL_LOST, FaultKind.REDIS_FLUSHED})
    skipped: Mapping[FaultKind, str] = {}
    settings: Mapping[str, str] = {}

    @abc.abstractmethod
    def start(self) -> None:
        """Start it, and return when it serves."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End all of its processes."""

    @abc.abstractmethod
    def url_of(self, role: str) -> str:
        """Return the URL of the operator's or the worker's user."""

    def proxied(self) -> tuple[str, int] | None:
        """Return host and port for a proxy's target; None if servers announce each other."""
        return None

    @abc.abstractmethod
    def primaries(self) -> list[RedisServer]:
        """Return the servers that now store points."""

    def holder_of(self, key: str) -> redis.Redis:
        """Return a connection to the server that has this key."""
        return connected(self.primaries()[0])

    def restart(self, number: int, seconds: float, lost: float = 0.0) -> str:
        """Kill a server, and restart it from its file without the last ``lost`` of it."""
        chosen = self.primaries()
        server = chosen[number % len(chosen)]
        old = server.pid
        server.kill()
        cut = cut_file(server.directory, int(lost * _TAIL_BYTES)) if lost else 0
        time.sleep(seconds)
        server.start()
        if lost and not cut:
            return ""
        return f"process {server.pid} after {old}" + (f", {cut} bytes less" if cut else "")

    def fail_over(self, number: int, seconds: float, *, losing: bool) -> str:
        """Replace a primary by its replica."""
        raise NotImplementedError

    def heal(self) -> None:  # noqa: B027 - one server has nothing to heal
        """Restart servers that a fault left dead, as replicas."""


class SingleServer(RedisSetup):
    """One Valkey with an append-only file."""

    kinds = USUAL | {
        FaultKind.REDIS_CUT, FaultKind.REDIS_LOST_REPLIES, FaultKind.REDIS_LATE_REPLIES,
        FaultKind.REDIS_HALF_OPEN,
    }  # fmt: skip

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self._server = RedisServer("valkey", folder, *APPENDING)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def url_of(self, role: str) -> str:
        return self._server.url_of(role)

    def proxied(self) -> tuple[str, int]:
        return "127.0.0.1", self._server.port

    def primaries(self) -> list[RedisServer]:
        return [self._server]


def cut_file(folder: Path, size: int) -> int:
    """Truncate the newest part of a server's append-only file; return the bytes cut off."""
    parts = sorted((folder / "appendonlydir").glob("*.incr.aof"))
    if not parts:
        return 0
    newest = parts[-1]
    whole = newest.stat().st_size
    left = max(0, whole - size)
    with newest.open("r+b") as file:
        file.truncate(left)
    return whole - left


def connected(server: RedisServer) -> redis.Redis:
    """Return an administrator's connection; commands fail soon if the server does not answer."""
    return redis.Redis(
        port=server.port, protocol=2,
        socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS,
    )  # fmt: skip


# -- what can be done to any server --------------------------------------------------------------


def flush(servers: list[RedisServer]) -> str:
    """Run FLUSHALL on each server."""
    gone = 0
    for server in servers:
        with connected(server) as client:
            gone += client.dbsize()
            client.flushall()
    return f"{gone} keys gone" if gone else ""


def fill(server: RedisServer, seconds: float) -> str:
    """Leave the server without memory for a while, and forbid eviction."""
    with connected(server) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1mb")
        try:
            refused = _is_full(client)
            time.sleep(seconds)
        finally:
            client.config_set("maxmemory", "0")
    return "SET answered OOM" if refused else ""


def _is_full(client: redis.Redis) -> bool:
    try:
        client.set("nemesis-probe", "x")
    except redis.OutOfMemoryError:
        return True
    client.delete("nemesis-probe")
    return False


def forget_scripts(servers: list[RedisServer]) -> str:
    """Run SCRIPT FLUSH on each server."""
    known = 0
    for server in servers:
        with connected(server) as client:
            known += int(client.info("memory")["number_of_cached_scripts"])
            client.script_flush()
    return f"{known} scripts forgotten" if known else ""


def kill_clients(servers: list[RedisServer]) -> str:
    """Kill all connections except those of our administrator."""
    killed = 0
    for server in servers:
        with connected(server) as client:
            killed += int(
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            )
            killed += int(client.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))
    return f"{killed} connections closed" if killed else ""
