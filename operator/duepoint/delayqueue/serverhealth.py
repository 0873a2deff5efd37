"""Checks whether the server is fit to hold the index: version, eviction, compact hashes, rights.

Each failed check is one line that says what to set where; readiness and the log repeat it, and
``duepoint_queue_problems`` shows it by name. Limits are set from here if our user may; the shipped
users may not, so the line says what to set. No configuration is read (CONFIG GET reads passwords,
too): a probe shows how the server stores a hash. In a cluster every primary is checked.

The limits of compact hashes matter most for memory: a bucket of definitions beyond one of them
silently becomes a hash table, which takes half as much again, and never becomes compact again by
itself.

An installation at rest must send nothing but keepalives. So after a complete check a review
asks only for the eviction policy, in one INFO; it repeats the complete check when the server is
unfit or has changed, a while after this process has stored rows, and each hour.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from duepoint import errors, services, telemetry
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.wire import connecting, scripting

#: Longest hash value that a bucket keeps in its compact form (the record of a schedule with the
#: longest name and a rule of its own is about 500 bytes), and most fields of such a bucket.
LISTPACK_VALUE_BYTES = 512
LISTPACK_ENTRIES = 512
_LIMITS = {
    "hash-max-listpack-value": LISTPACK_VALUE_BYTES,
    "hash-max-listpack-entries": LISTPACK_ENTRIES,
}
#: The part of a process's health that is about the server.
PART = "queue server"
#: The least time between two reviews that ask the server anything, and between two complete checks
#: of a fit server. A limit may be changed without a reconnection, but costs only what is stored.
_REVIEW_SECONDS = 60.0
_CHECK_SECONDS = 3_600.0
CHECKS = ("version", "eviction", "listpack", "rights")

#: Commands that both kinds of process use on the keys of a shard, inside scripts and outside.
_BY_BOTH = (
    *("HGET", "HMGET", "HSET", "HDEL", "HEXISTS", "HINCRBY", "HLEN", "HSETNX", "HGETALL"),
    *("ZADD", "ZREM", "ZRANGE", "ZSCORE", "ZCOUNT", "ZLEXCOUNT", "ZMSCORE"),
    *("XADD", "XDEL", "XTRIM", "XRANGE", "XREVRANGE", "ZREMRANGEBYSCORE"),
    *("TIME", "SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE", "EXPIRE"),
)
BY_WORKERS = (*_BY_BOTH, "SET", "DEL")
BY_OPERATORS = (
    *_BY_BOTH,
    *("HSCAN", "ZSCAN", "ZCARD", "EXISTS", "UNLINK", "XLEN"),
    *("OBJECT|ENCODING", "HKEYS", "SADD", "SCARD", "SISMEMBER", "SMEMBERS", "SREM"),
    *("XGROUP|CREATE", "XGROUP|DESTROY"),
)
#: Commands whose arguments are all keys or channels, or that have one argument.
_KEYS_ONLY = (
    "SSUBSCRIBE",
    "SUNSUBSCRIBE",
    "HGETALL",
    "HKEYS",
    "HLEN",
    "EXISTS",
    "UNLINK",
    "DEL",
    "SCARD",
    "SMEMBERS",
)


def report(problems: Sequence[str], health: services.Health) -> None:
    """Report problems in readiness and the log; an unfit server is used all the same."""
    if not problems:
        health.well(PART)
    elif health.unwell(PART, "; ".join(problems)):
        telemetry.logger.error("unfit queue server", problems=list(problems))


@dataclass(eq=False)
class ServerHealth:
    """Checks that the servers answer, are fit to hold the index, and keep it."""

    index: index.Index

    def __post_init__(self) -> None:
        self._found: dict[str, str | None] = {}
        self._checked_at = self._reviewed_at = float("-inf")
        self._changes = (0, 0)
        self._stored = 0

    async def problems(self, *, fills: bool = False) -> tuple[str, ...]:
        """Check everything; return one line for each problem, none if the server is fit.

        Args:
            fills: check the rights of the operator instead of a worker's.
        """
        changes, stored = self._server_changes(), self.index.stored
        nodes = await self.index.servers.everywhere([("INFO", "server"), ("INFO", "memory")])
        infos = scripting.of_those_there(nodes, "read the version of the server")
        self._found = {
            "version": _first(connecting.version_problem(server) for server, _ in infos),
            "eviction": _first(_eviction_problem(memory) for _, memory in infos),
            # Workers store no definitions, and have no right to check.
            "listpack": await self._listpack_problem() if fills else None,
            "rights": await self._rights_problem(BY_OPERATORS if fills else BY_WORKERS),
        }
        self._changes, self._stored = changes, stored
        self._checked_at = self.index.clock.monotonic()
        return self._reviewed()

    async def review(self, *, fills: bool = False) -> tuple[str, ...]:
        """Check what may have changed since the last check; return one line for each problem.

        Args:
            fills: see ``problems``.
        """
        now = self.index.clock.monotonic()
        is_suspect = any(self._found.values()) or self._server_changes() != self._changes
        check_seconds = _CHECK_SECONDS if self.index.stored == self._stored else _REVIEW_SECONDS
        if is_suspect or now - self._checked_at >= check_seconds:
            return await self.problems(fills=fills)
        if now - self._reviewed_at >= _REVIEW_SECONDS:
            nodes = await self.index.servers.everywhere([("INFO", "memory")])
            infos = scripting.of_those_there(nodes, "read the eviction policy of the server")
            self._found["eviction"] = _first(_eviction_problem(memory) for (memory,) in infos)
            return self._reviewed()
        return ()

    def _reviewed(self) -> tuple[str, ...]:
        self._reviewed_at = self.index.clock.monotonic()
        for check in CHECKS:
            telemetry.queue_problems.labels(check).set(self._found[check] is not None)
        return tuple(line for line in self._found.values() if line)

    def _server_changes(self) -> tuple[int, int]:
        changes = self.index.servers.changes
        return changes.upheavals, changes.generation

    async def durability(self) -> ServerDurability:
        """Return the present durability; raises QueueUnavailable if no server answers."""
        nodes = await self.index.servers.everywhere(_ASKED)
        infos = scripting.of_those_there(nodes, "read the persistence of the server")
        found = [_durability_of(persistence, replication) for persistence, replication in infos]
        return ServerDurability(
            persistence=min((one.persistence for one in found), key=_PERSISTENCES.index),
            replicas=min(one.replicas for one in found),
        )

    async def keepalive(self) -> tuple[messages.ShardId, ...]:
        """PING every idle connection; return shards that are gone, one for each emptied server.

        Closes connections that died silently, and reads the map of a cluster and the number of
        replicas again. A server that was emptied has lost all of its shards.
        """
        await self.index.servers.keepalive()
        await self.index.servers.refresh()
        if self.index.layout is None:
            return ()
        shards = {
            self.index.shard(shard).meta: shard for shard in sharding.all_shards(self.index.layout)
        }
        asked = [names[0] for names in self.index.servers.homes(tuple(shards)).values()]
        replies = await self.index.servers.exchange([("HGET", meta, "layout") for meta in asked])
        scripting.good(replies, "look for the shards")
        return tuple(
            shards[meta] for meta, found in zip(asked, replies, strict=True) if found is None
        )

    async def time_us(self) -> int:
        """Return the time of the server's clock, UTC in microseconds."""
        (reply,) = await self.index.read("read the clock", ("TIME",))
        return int(reply[0]) * 1_000_000 + int(reply[1])

    @property
    def upheavals(self) -> int:
        """How often a server was found replaced by another one: writes may be lost."""
        return self.index.servers.changes.upheavals

    def hosts(self) -> tuple[connecting.Host, ...]:
        """Return hosts and ports of the servers that were discovered, beside those of the URL."""
        return self.index.servers.hosts()

    # -- compact hashes ----------------------------------------------------------------------------

    async def _listpack_problem(self) -> str | None:
        wrong = await self._exceeded()
        if not wrong:
            return None
        with contextlib.suppress(errors.TryLater):  # no right to set them
            for name in wrong:
                command = ("CONFIG", "SET", name, _LIMITS[name])
                for replies in await self.index.servers.everywhere([command]):
                    scripting.good(replies, f"set {name}")
        still = await self._exceeded()
        if not still:
            return None
        are = " and ".join(f"{name} is below {_LIMITS[name]}" for name in still)
        written = " and ".join(f"{name} {_LIMITS[name]}" for name in still)
        return (
            f"{are} and this user may not change that: definitions would need half as much"
            f" memory again; set {written} in the server's configuration, or grant this user"
            " +config|set"
        )

    async def _exceeded(self) -> list[str]:
        """Return the limits that a bucket of definitions would exceed on any of the servers."""
        of_a_value = ("field", "x" * LISTPACK_VALUE_BYTES)
        of_entries = [part for number in range(LISTPACK_ENTRIES) for part in (number, "")]
        exceeded = []
        for name, fields in zip(_LIMITS, (of_a_value, of_entries), strict=True):
            keys = [f"{key}:{secrets.token_hex(4)}" for key in self._probes()]
            commands = [
                command
                for key in keys
                for command in (
                    ("HSET", key, *fields), ("OBJECT", "ENCODING", key), ("UNLINK", key),
                )
            ]  # fmt: skip
            replies = await self.index.servers.exchange(commands)
            if b"hashtable" in replies[1::3]:
                exceeded.append(name)
        return exceeded

    def _probes(self) -> list[str]:
        """Return a key on each server with shards; one on the layout's server until it is read."""
        if self.index.layout is None:
            return [self.index.keys.probe]
        shards = (self.index.shard(shard).probe for shard in sharding.all_shards(self.index.layout))
        return [names[0] for names in self.index.servers.homes(tuple(shards)).values()]

    # -- rights ------------------------------------------------------------------------------------

    async def _rights_problem(self, needed: Sequence[str]) -> str | None:
        key = self.index.keys.layout
        call = scripting.ScriptCall(
            "rights", [key], commands=[_example(name, key) for name in needed]
        )
        refused = await self.index.scripts.run(call)
        if not refused:
            return None
        prefix = self.index.keys.prefix
        missing = " ".join(f"+{needed[position - 1].lower()}" for position in refused)
        return (
            f"this Redis user lacks rights that it needs on {prefix}* (keys and channels); grant it"
            f" ~{prefix}* &{prefix}* {missing}"
        )


def _example(name: str, key: str) -> list[str]:
    """Return a sample call of this command for a check of rights: name, keys and channels."""
    match name:
        case "TIME":
            return [name]
        case "OBJECT|ENCODING":
            return ["OBJECT", "ENCODING", key]
        case "XGROUP|CREATE":
            return ["XGROUP", "CREATE", key, "group", "$"]
        case "XGROUP|DESTROY":
            return ["XGROUP", "DESTROY", key, "group"]
    return [name, key] if name in _KEYS_ONLY else [name, key, "0", "0", "0"]


def _eviction_problem(memory: dict[str, Any]) -> str | None:
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return None
    return (
        f"maxmemory-policy is {policy}: the server would evict schedules;"
        " set maxmemory-policy noeviction"
    )


def _first(lines: Iterable[str | None]) -> str | None:
    return next((line for line in lines if line), None)


_ASKED = (("INFO", "persistence"), ("INFO", "replication"))
#: From the weakest to the strongest.
_PERSISTENCES = ("none", "rdb", "aof", "aof+rdb")

_BY_FILE = (
    "about the last second of changes when a server dies (appendfsync everysec, the default), and"
    " nothing with appendfsync always"
)
_LOST = {
    "none": (
        "every member when a server restarts: it keeps no append-only file and has saved no"
        " snapshot since it started"
    ),
    "rdb": "every change since the last snapshot when a server restarts",
    "aof": _BY_FILE,
    "aof+rdb": _BY_FILE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDurability:
    """The durability of the weakest server.

    Attributes:
        persistence: ``aof``, ``rdb``, ``aof+rdb`` or ``none``.
        replicas: connected ones.
    """

    persistence: str
    replicas: int = 0

    @property
    def loss_window(self) -> str:
        """What the loss of a server can lose, in words."""
        lost = _LOST[self.persistence]
        if not self.replicas:
            return f"{lost}; there is no replica"
        count = "1 replica" if self.replicas == 1 else f"{self.replicas} replicas"
        return f"{lost}; a failover to one of {count} loses what had not reached it"


def _durability_of(persistence: dict[str, Any], replication: dict[str, Any]) -> ServerDurability:
    has_file = int(persistence.get("aof_enabled") or 0) > 0
    has_snapshots = int(persistence.get("rdb_saves") or 0) > 0
    kinds = ["aof"] * has_file + ["rdb"] * has_snapshots
    return ServerDurability(
        persistence="+".join(kinds) or "none",
        replicas=int(replication.get("connected_slaves") or 0),
    )
