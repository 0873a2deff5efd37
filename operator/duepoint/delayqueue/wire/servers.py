"""Routes the commands of the queue: to one server, or to the nodes of a cluster.

The queue's services pass commands with full keys to ``Servers`` and get replies in order; they need
not know which node has a shard, or that it just moved. ``homes`` tells which server each channel
is on, for subscriptions; ``changes.generation`` grows when that may differ.

For a cluster, redis-py's own client is not used. It has no hook to greet a node, so it would not
notice that a server was replaced or is too old. It closes the connections to every node when one of
them is away. And it sends redirected commands after all others of a pipeline.

Each node is a plain Node, and one exchange is one pipeline to each node concerned, all at the same
time. MOVED is followed after the map of slots was read again. Every other error, such as ASK and
TRYAGAIN, is returned in place: the caller waits, only for the shards concerned. If a slot gets an
owner that had no slots before, that is an upheaval: writes that had not reached it are lost.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

import redis.asyncio
import redis.crc
import redis.exceptions
import structlog

from duepoint import faults, redisurl
from duepoint.delayqueue.wire import connecting, nodes
from duepoint.faults import FaultPoint

Command = nodes.Command

log = structlog.get_logger(__name__)

SLOTS = 16_384
#: Most rounds of one call: a migrated slot takes two, three while the migration ends.
_MOST_ROUNDS = 3
_REFRESH_TIMEOUT_SECONDS = 2.0
#: The map is not read more often than this, in seconds: many calls meet the same migration.
_LEAST_REFRESH_SECONDS = 0.05

#: Position of the key in commands that do not have it first; None = they have none.
_KEY_AT = {
    "EVALSHA": 3, "XINFO": 2, "XGROUP": 2, "OBJECT": 2,
    "INFO": None, "PING": None, "SCRIPT": None, "CONFIG": None,
    "ACL": None, "TIME": None, "CLUSTER": None, "ECHO": None,
}  # fmt: skip
#: The answer of a server without a cluster to CLUSTER SLOTS.
_NO_CLUSTER = "cluster support disabled"
#: Commands without a key go to the node that has this key.
_HOME_KEY = "{ctl}"
#: Any of these errors may mean that a slot has another owner by now.
_STALE = (
    OSError,
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
)


class OneServer(nodes.Node):
    """A server at one address, or the one that Sentinel calls the primary."""

    is_cluster = False

    def __init__(self, server: connecting.Server, *, connections: int) -> None:
        self.changes = nodes.ServerChanges()
        self._open = functools.partial(
            nodes.Node, server, None, on_upheaval=self.changes.note_upheaval
        )
        super().__init__(
            server, None, connections=connections, on_upheaval=self.changes.note_upheaval
        )

    async def everywhere(self, commands: Sequence[Command]) -> list[list[Any]]:
        """Return the replies of every primary."""
        return [await self.exchange(commands)]

    def homes(self, names: Sequence[str]) -> Mapping[Hashable, Sequence[str]]:
        """Return keys or channels by the server that has them."""
        return {"": tuple(names)}

    def listener(self, home: Hashable) -> redis.asyncio.Redis:  # noqa: ARG002 - there is one
        """Return a client for one subscription on that server; the caller closes it."""
        return self._open(connections=1).client


@functools.lru_cache(maxsize=20_000)
def _slot_of_tag(tag: bytes) -> int:
    return redis.crc.key_slot(tag)


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key or channel; of its hash tag if it has one."""
    data = key.encode() if isinstance(key, str) else key
    start = data.find(b"{")
    end = data.find(b"}", start + 1)
    return _slot_of_tag(data[start + 1 : end] if 0 <= start < end - 1 else data)


def slot_of_command(command: nodes.Command) -> int:
    at = _KEY_AT.get(command[0], 1)
    return slot_of(_HOME_KEY if at is None else command[at])


#: The owner of each slot; None = no node.
_Owners = list[connecting.Host | None]


class Cluster:
    """The nodes of a cluster; its methods do what those of ``OneServer`` do."""

    is_cluster = True

    def __init__(self, server: connecting.Server, *, connections: int) -> None:
        self.changes = nodes.ServerChanges()
        self._open = functools.partial(
            nodes.Node, server, on_upheaval=self.changes.note_upheaval, takes_replicas=True
        )
        self._connections = connections
        self._seeds = server.address().hosts
        self._map_source = self._seeds[0]
        self._trouble = "no node of the cluster has been found"
        self._nodes: dict[connecting.Host, nodes.Node] = {}
        self._owners: _Owners = [None] * SLOTS
        self._replicas: dict[connecting.Host, set[connecting.Host]] = {}
        self._is_stale = True
        self._refreshing = asyncio.Lock()
        self._refreshed_at = float("-inf")

    # -- commands --------------------------------------------------------------------------------

    async def exchange(
        self,
        commands: Sequence[nodes.Command],
        *,
        confirmed: bool = False,
        safety: nodes.Safety | None = None,
    ) -> list[Any]:
        upheavals = self.changes.upheavals
        slots = [slot_of_command(command) for command in commands]
        replies: list[Any] = [None] * len(commands)
        wanted: Sequence[int] = range(len(commands))
        for _ in range(_MOST_ROUNDS):
            if self._is_stale:
                await self.refresh()
            if confirmed and self.changes.upheavals != upheavals:
                break  # the node changed after these were prepared
            await self._send(commands, slots, wanted, replies, confirmed=confirmed, safety=safety)
            wanted = self._moved(slots, wanted, replies)
            if not wanted:
                break
            await asyncio.sleep(_LEAST_REFRESH_SECONDS)
        for position in wanted:
            replies[position] = redis.exceptions.TryAgainError("the slot has moved again")
        return replies

    async def _send(
        self,
        commands: Sequence[nodes.Command],
        slots: Sequence[int],
        wanted: Iterable[int],
        replies: list[Any],
        *,
        confirmed: bool,
        safety: nodes.Safety | None,
    ) -> None:
        """Send one pipeline to each owner."""
        by_owner: dict[connecting.Host, list[int]] = {}
        for position in wanted:
            owner = self._owners[slots[position]]
            if owner is not None:
                by_owner.setdefault(owner, []).append(position)
            else:
                self._is_stale = True
                trouble = "no node is known for the slot" if self._replicas else self._trouble
                replies[position] = redis.exceptions.ClusterDownError(f"CLUSTERDOWN {trouble}")

        async def send_to(owner: connecting.Host, positions: Sequence[int]) -> None:
            part = [commands[position] for position in positions]
            found = await self._exchange_with(owner, part, confirmed=confirmed, safety=safety)
            for position, reply in zip(positions, found, strict=True):
                replies[position] = reply

        if len(by_owner) == 1:
            await send_to(*by_owner.popitem())
            return
        async with asyncio.TaskGroup() as group:
            for owner, positions in by_owner.items():
                group.create_task(send_to(owner, positions))

    async def _exchange_with(
        self,
        host: connecting.Host,
        commands: Sequence[nodes.Command],
        **how: Any,  # noqa: ANN401
    ) -> list[Any]:
        replies = await self._node(host).exchange(commands, **how)
        self._is_stale |= any(isinstance(reply, _STALE) for reply in replies)
        return replies

    def _moved(
        self, slots: Sequence[int], sent: Iterable[int], replies: Sequence[Any]
    ) -> list[int]:
        """Return the positions of the commands to send to another node."""
        found = []
        for position in sent:
            if isinstance(moved := replies[position], redis.exceptions.MovedError):
                found.append(position)
                self._is_stale = True
                self._map_source = _host((moved.host, moved.port), self._owners[slots[position]])
        return found

    async def everywhere(self, commands: Sequence[nodes.Command]) -> list[list[Any]]:
        if self._is_stale:
            await self.refresh()
        if not self._replicas:
            return [[redis.exceptions.ConnectionError(self._trouble)] * len(commands)]
        asked = (self._exchange_with(host, commands) for host in self._replicas)
        return await asyncio.gather(*asked)

    async def keepalive(self) -> None:
        await asyncio.gather(*(node.keepalive() for node in self._nodes.values()))

    # -- the map of slots ------------------------------------------------------------------------

    def hosts(self) -> tuple[connecting.Host, ...]:
        return tuple(dict.fromkeys((*self._replicas, *set().union(*self._replicas.values()))))

    async def refresh(self) -> None:
        """Read the map of slots of the first node that answers."""
        seen = self._refreshed_at
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if self._refreshed_at != seen or now - seen < _LEAST_REFRESH_SECONDS:
                return
            await faults.reach(FaultPoint.BEFORE_CLUSTER_MAP)
            for host in dict.fromkeys((self._map_source, *self.hosts(), *self._seeds)):
                if found := await self._read_map(host):
                    self._is_stale = False
                    self._map_source = host
                    await self._take(found, host)
                    break
            self._refreshed_at = asyncio.get_running_loop().time()

    async def _read_map(self, host: connecting.Host) -> Sequence[Any]:
        try:
            async with asyncio.timeout(_REFRESH_TIMEOUT_SECONDS):
                (reply,) = await self._node(host).exchange([("CLUSTER", "SLOTS")])
        except TimeoutError:
            reply = redis.exceptions.TimeoutError("no answer")
        if not isinstance(reply, Exception):
            return cast("Sequence[Any]", reply)
        said = f": {str(reply) or type(reply).__name__}"
        if _NO_CLUSTER in said:
            said = " is not a cluster; use redis:// instead of redis+cluster://"
        self._trouble = f"{host[0]}:{host[1]}{said}"
        return ()

    async def _take(self, reply: Sequence[Any], asked: connecting.Host) -> None:
        former, had = self._owners, self._replicas
        owners: _Owners = [None] * SLOTS
        self._replicas = {}
        for first, last, primary, *others in reply:
            owner = _host(primary, asked)
            owners[first : last + 1] = [owner] * (last + 1 - first)
            self._replicas.setdefault(owner, set()).update(_host(each, asked) for each in others)
        self._owners = owners
        for host, node in self._nodes.items():
            node.replicas = len(self._replicas.get(host, ()))
        if had and self._replicas.keys() - had.keys():
            log.warning("a replica has become primary; the last writes may be lost")
            self.changes.note_upheaval()
        if owners != former:
            self.changes.note_change()
        for host in self._nodes.keys() - {asked, *self.hosts()}:
            await self._nodes.pop(host).close()

    def _node(self, host: connecting.Host) -> nodes.Node:
        if host not in self._nodes:
            self._nodes[host] = self._open(host, connections=self._connections)
        return self._nodes[host]

    def homes(self, names: Sequence[str]) -> Mapping[Hashable, Sequence[str]]:
        homes: dict[Hashable, list[str]] = {}
        for name in names:
            owner = self._owners[slot_of(name)]
            if owner is not None:
                homes.setdefault(owner, []).append(name)
        return homes

    def listener(self, home: Hashable) -> redis.asyncio.Redis:
        return self._open(cast("connecting.Host", home), connections=1).client

    async def close(self) -> None:
        for node in self._nodes.values():
            await node.close()


def _host(entry: Sequence[Any], asked: connecting.Host | None) -> connecting.Host:
    """Return the host of an entry; one without a name is at the host that was asked."""
    name = entry[0].decode() if isinstance(entry[0], bytes) else entry[0]
    return (asked[0] if asked and name in (None, "", "?") else name, int(entry[1]))


Servers = OneServer | Cluster


def open_servers(server: connecting.Server, *, connections: int = 8) -> Servers:
    """Return the servers of the URL; raises InvalidSetting if it is invalid. Does not connect."""
    if server.address().kind is redisurl.ServerKind.CLUSTER:
        return Cluster(server, connections=connections)
    return OneServer(server, connections=connections)
