"""A Redis Cluster of real processes: three primaries, each with a replica on request.

Tests may kill, pause and restart nodes. Slots move key by key, which every server supports
(``move_slot``), or by the server itself if it can (``Valkey`` 9). Every node has the users that the
chart ships.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from tests.support.redisserver import KINDS, RedisServer, free_port
from tests.support.waiting import wait_until

SLOTS = 16_384
PRIMARIES = 3


class RedisCluster:
    """Nodes on ports of this machine; the first three begin as primaries."""

    def __init__(
        self,
        kind: str,
        directory: Path,
        *,
        replicas: bool = False,
        options: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.kind = kind
        self._options = options
        self.nodes = [
            self._node(directory / f"node{number}")
            for number in range(PRIMARIES * (2 if replicas else 1))
        ]

    def _node(self, directory: Path) -> RedisServer:
        directory.mkdir(parents=True)
        return RedisServer(
            self.kind, directory, "--cluster-enabled", "yes", "--cluster-node-timeout", "1500",
            "--cluster-replica-validity-factor", "0", "--cluster-port", str(free_port()),
            "--cluster-config-file", str(directory / "nodes.conf"),
            "--repl-diskless-sync-delay", "0", *self._options(),
        )  # fmt: skip

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        first, *others = self.nodes
        share = SLOTS // PRIMARIES + 1
        for number, node in enumerate(self.nodes[:PRIMARIES]):
            last = min((number + 1) * share, SLOTS) - 1
            self.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            self.ask(node, "CLUSTER", "ADDSLOTSRANGE", number * share, last)
        for node in others:
            bus = int(node.option("--cluster-port"))
            self.ask(first, "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        wait_until(self._know_one_another, "every node knows every other")
        for primary, replica in zip(self.nodes, self.nodes[PRIMARIES:], strict=False):
            self.ask(replica, "CLUSTER", "REPLICATE", self.id_of(primary))
        wait_until(self._is_well, "the cluster is well")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def ask(self, node: RedisServer, *command: Any) -> Any:
        with node.client() as client:
            return client.execute_command(*command)

    def id_of(self, node: RedisServer) -> str:
        return str(self.ask(node, "CLUSTER", "MYID").decode())

    def owner(self, slot: int) -> RedisServer:
        """Return the node that claims to own this slot."""
        for node in self.nodes:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                for first, last, (_, port, *_), *_ in self.ask(node, "CLUSTER", "SLOTS"):
                    if first <= slot <= last and port == node.port:
                        return node
        raise LookupError(f"nobody holds slot {slot}")

    def owner_of(self, key: str) -> RedisServer:
        return self.owner(key_slot(key.encode()))

    # -- moving slots ----------------------------------------------------------------------------

    def begin_move(self, slot: int, target: RedisServer) -> RedisServer:
        source = self.owner(slot)
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        return source

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer, most: int) -> int:
        """Move at most this many keys of the slot, and return how many were moved."""
        names = self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, most)
        if names:
            self.move_these(source, target, *names)
        return len(names)

    def move_these(self, source: RedisServer, target: RedisServer, *names: Any) -> None:
        self.ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)

    def end_move(self, slot: int, target: RedisServer) -> None:
        others = (node for node in self.nodes[:PRIMARIES] if node is not target)
        for node in itertools.chain([target], others):
            self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def move_slot(self, slot: int, target: RedisServer, *, pause: float = 0.0) -> None:
        """Move a slot key by key, with a pause after each."""
        source = self.begin_move(slot, target)
        while self.move_keys(slot, source, target, 1):
            time.sleep(pause)
        self.end_move(slot, target)

    def _know_one_another(self) -> bool:
        return all(
            self.ask(node, "CLUSTER INFO")["cluster_known_nodes"] == str(len(self.nodes))
            for node in self.nodes
        )

    def _is_well(self) -> bool:
        infos = [self.ask(node, "CLUSTER INFO") for node in self.nodes]
        if not all(info["cluster_state"] == "ok" for info in infos):
            return False
        for replica in self.nodes[PRIMARIES:]:
            said = self.ask(replica, "INFO", "replication")
            if said["role"] != "slave" or said["master_link_status"] != "up":
                return False
        # Every node has learned every other node's role.
        wanted = len(self.nodes) // PRIMARIES - 1
        return all(
            all(len(entry) - 3 >= wanted for entry in self.ask(node, "CLUSTER", "SLOTS"))
            for node in self.nodes
        )


@pytest.fixture(scope="session")
def shared_clusters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], RedisCluster]]:
    """Return clusters without replicas that no test disturbs, by kind, started on demand."""
    running: dict[str, RedisCluster] = {}

    def get(kind: str) -> RedisCluster:
        if kind not in running:
            running[kind] = RedisCluster(kind, tmp_path_factory.mktemp(f"{kind}-cluster"))
            running[kind].start()
        return running[kind]

    yield get
    for cluster in running.values():
        cluster.stop()


@pytest.fixture(params=KINDS)
def shared_cluster(
    request: pytest.FixtureRequest, shared_clusters: Callable[[str], RedisCluster]
) -> RedisCluster:
    """Return a cluster whose slots a test may move."""
    return shared_clusters(request.param)


@pytest.fixture(params=KINDS)
def own_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisCluster]:
    """Yield a cluster with replicas whose nodes this test may kill."""
    cluster = RedisCluster(request.param, tmp_path, replicas=True)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
