"""A cluster of three primaries, and a primary under Sentinel; each primary has a replica.

A replica that is cut off stops copying, so later writes of its primary are lost when the primary
dies: ``fail_over(losing=True)``. Replication is asynchronous, so a primary that merely dies may
lose writes as well.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import redis
from redis.crc import key_slot

from tests.chaos.plan import FaultKind
from tests.chaos.servers import APPENDING, USUAL, RedisSetup, connected
from tests.support import promoting, redisusers
from tests.support.rediscluster import PRIMARIES, SLOTS, RedisCluster
from tests.support.redisserver import RedisServer
from tests.support.sentinels import NAME, PASSWORD, Watched
from tests.support.waiting import wait_until

_OF_REPLICAS = frozenset({FaultKind.FAILOVER, FaultKind.FAILOVER_LOSING})
_PROMOTION_SECONDS = 40.0


class _Pairs(RedisSetup):
    """The common part of a cluster and Sentinel.

    The replica of a paused or dead primary may replace it, and may lack the newest writes.
    """

    kinds = USUAL | _OF_REPLICAS
    forgets = RedisSetup.forgets | {
        FaultKind.FAILOVER, FaultKind.FAILOVER_LOSING, FaultKind.REDIS_STOPPED,
        FaultKind.REDIS_RESTART,
    }  # fmt: skip

    _pairs: list[tuple[RedisServer, RedisServer]]

    def __init__(self) -> None:
        super().__init__()
        self._dead: list[RedisServer] = []

    def primaries(self) -> list[RedisServer]:
        return [self._primary(pair) for pair in self._pairs]

    def fail_over(self, number: int, seconds: float, *, losing: bool) -> str:
        pair = self._pairs[number % len(self._pairs)]
        primary = self._primary(pair)
        replica = pair[1] if primary is pair[0] else pair[0]
        if losing:
            replica.pause()
            with connected(primary) as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "replica")
                before = client.info("replication")["master_repl_offset"]
                time.sleep(seconds)
                lost = client.info("replication")["master_repl_offset"] - before
        primary.kill()
        self._dead.append(primary)
        if losing:
            replica.resume()
        wait_until(lambda: _is_primary(replica), "the replica is primary", _PROMOTION_SECONDS)
        return f"promoted without {lost} bytes" if losing else "promoted"

    def heal(self) -> None:
        for server in self._dead:
            server.start()
        self._dead.clear()
        wait_until(self._all_follow, "every replica follows its primary", _PROMOTION_SECONDS)

    def _all_follow(self) -> bool:
        for pair in self._pairs:
            try:
                roles = sorted(_replication(server)["role"] for server in pair)
                links = [_replication(server).get("master_link_status", "up") for server in pair]
            except redis.RedisError:
                return False
            if roles != ["master", "slave"] or set(links) != {"up"}:
                return False
        return True

    def _primary(self, pair: tuple[RedisServer, RedisServer]) -> RedisServer:
        """Return the primary of a pair; if both claim to be it, the one promoted last."""
        found = []
        for server in pair:
            with contextlib.suppress(redis.RedisError):
                if _is_primary(server):
                    found.append(server)
        if not found:
            raise redis.ConnectionError("no primary answers")
        return max(found, key=self._rank)

    def _rank(self, server: RedisServer) -> int:
        raise NotImplementedError


class Cluster(_Pairs):
    """Six nodes; ``KIND=cluster``."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._cluster = RedisCluster(
            "valkey",
            folder,
            replicas=True,
            options=lambda: APPENDING,
        )
        nodes = self._cluster.nodes
        self._pairs = list(zip(nodes[:PRIMARIES], nodes[PRIMARIES:], strict=True))

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    def url_of(self, role: str) -> str:
        return redisusers.url_for(self._cluster.url, role)

    def holder_of(self, key: str) -> redis.Redis:
        share = SLOTS // PRIMARIES + 1
        return connected(self._primary(self._pairs[key_slot(key.encode()) // share]))

    def _rank(self, server: RedisServer) -> int:
        with connected(server) as client:
            return int(client.execute_command("CLUSTER INFO")["cluster_my_epoch"])


class UnderSentinel(_Pairs):
    """A primary, its replica and three Sentinels; ``KIND=sentinel``."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._watched = Watched("valkey", folder / "watched", *APPENDING)
        first, second = self._watched.servers
        self._pairs = [(first, second)]
        password = folder / "sentinel-password"
        password.write_text(PASSWORD)
        self.settings: Mapping[str, str] = {"redis_sentinel_password_file": str(password)}

    def start(self) -> None:
        self._watched.start()

    def stop(self) -> None:
        self._watched.stop()

    def url_of(self, role: str) -> str:
        return promoting.UnderSentinel(self._watched).url_of(role)

    def _rank(self, server: RedisServer) -> int:
        """Return 1 for the primary that the Sentinels name."""
        for address in self._watched.hosts.split(","):
            port = int(address.rpartition(":")[2])
            client = redis.Redis(port=port, password=PASSWORD, protocol=2, socket_timeout=2)
            with contextlib.closing(client), contextlib.suppress(redis.RedisError):
                named = client.sentinel_get_master_addr_by_name(NAME)
                return int(named is not None and int(named[1]) == server.port)
        return 0


def _replication(server: RedisServer) -> dict[str, str]:
    with connected(server) as client:
        found: dict[str, str] = client.info("replication")
        return found


def _is_primary(server: RedisServer) -> bool:
    try:
        return _replication(server)["role"] == "master"
    except redis.RedisError:
        return False
