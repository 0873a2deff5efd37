"""A primary, its replica, and three Sentinels that monitor them.

A Sentinel is the server's own binary with ``--sentinel``, for the embedded Valkey as for Redis.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import redis

from tests.support.redisserver import RedisServer, binary_of, free_port
from tests.support.waiting import wait_until

NAME = "the-primary"
PASSWORD = "of-the-sentinels"
COUNT = 3


class Watched:
    """Servers under Sentinel; the Sentinels have a password of their own.

    Attributes:
        scheme: that of their URL.
    """

    scheme = "redis+sentinel"

    def __init__(
        self,
        kind: str,
        folder: Path,
        *options: str,
    ) -> None:
        self._kind = kind
        self._options = options
        self._folder = folder
        self.servers = [self._server(folder / name) for name in ("one", "two")]
        self._ports = [free_port() for _ in range(COUNT)]
        self._sentinels: list[subprocess.Popen[bytes]] = []

    def _server(self, folder: Path, *options: str) -> RedisServer:
        folder.mkdir(parents=True)
        return RedisServer(
            self._kind,
            folder,
            "--repl-diskless-sync-delay",
            "0",
            *self._options,
            *options,
        )

    def port_of(self, server: RedisServer) -> int:
        """Return the port at which Sentinels announce a server."""
        return server.port

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self) -> None:
        first, second = self.servers
        first.start()
        second.start()
        self.follow(second, first)
        for number, port in enumerate(self._ports):
            self._sentinels.append(self._sentinel(number, port, self.port_of(first)))
        wait_until(self._all_know, "every Sentinel knows the replica and the others")
        for port in self._ports:
            self._never_tilt(port)

    def _sentinel(self, number: int, port: int, primary: int) -> subprocess.Popen[bytes]:
        settings = self._folder / f"sentinel{number}.conf"
        settings.write_text(
            f"port {port}\nbind 127.0.0.1\nrequirepass {PASSWORD}\n"
            f"sentinel sentinel-pass {PASSWORD}\n"
            f"sentinel monitor {NAME} 127.0.0.1 {primary} 2\n"
            f"sentinel down-after-milliseconds {NAME} 800\n"
            f"sentinel failover-timeout {NAME} 5000\n"
        )
        log = (self._folder / f"sentinel{number}.log").open("wb")
        with log:
            return subprocess.Popen(
                [binary_of(self._kind), str(settings), "--sentinel"], stdout=log, stderr=log
            )

    def stop(self) -> None:
        for sentinel in self._sentinels:
            sentinel.kill()
            sentinel.wait()
        for server in self.servers:
            server.stop()

    def follow(self, replica: RedisServer, primary: RedisServer) -> None:
        with replica.client() as client:
            client.replicaof("127.0.0.1", self.port_of(primary))
            wait_until(
                lambda: client.info("replication")["master_link_status"] == "up",
                "the replica follows",
            )  # fmt: skip

    def _never_tilt(self, port: int) -> None:
        """Disable TILT: a Sentinel stalled for two seconds would monitor nothing for thirty."""
        with redis.Redis(port=port, password=PASSWORD, protocol=2) as client:
            client.execute_command("SENTINEL", "DEBUG", "tilt-trigger", 600_000)

    def _all_know(self) -> bool:
        for port in self._ports:
            client = redis.Redis(port=port, password=PASSWORD, protocol=2)
            try:
                state = client.sentinel_master(NAME)
            except redis.RedisError:
                return False
            finally:
                client.close()
            if (state["num-slaves"], state["num-other-sentinels"]) != (1, COUNT - 1):
                return False
        return True
