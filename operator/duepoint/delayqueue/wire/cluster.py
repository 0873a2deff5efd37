"""A Redis Cluster: which node holds which slot, and commands sent to where their keys are.

The library's cluster client is not used: it repeats commands after a lost connection (a script may
have been applied), runs what was redirected after everything else of a pipeline, and knows no
order of reads behind scripts. Here each node is a plain Node, and one exchange is one pipeline for
each node that it concerns, all at the same time.

MOVED is followed at once and the map of slots read again; ASK is followed for that command alone.
Behind a redirected command everything of its slot that is no script is asked again, because it
may have been answered before the script ran; a script that ran is never run again. TRYAGAIN,
CLUSTERDOWN and a node that does not answer are errors in place: the caller waits, only for the
shards concerned. A silent node is waited for once; from then on only ``NodeHealth`` asks it. A slot
whose new owner was a replica before, or unknown, is an upheaval: what had not reached it is lost.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio
import redis.crc
import redis.exceptions
import structlog

from duepoint import faults
from duepoint.delayqueue.wire import changes, connecting, nodes
from duepoint.faults import FaultPoint

log = structlog.get_logger(__name__)

SLOTS = 16_384
#: Redirections of one command that are followed; a move takes one, two while it is finished.
_MOST_HOPS = 5
_REFRESH_TIMEOUT_SECONDS = 2.0
#: The map is not asked for more often than this, in seconds: many calls meet the same move.
_LEAST_REFRESH_SECONDS = 0.05

#: Where the key stands, of commands that do not have it first; None = they have none.
_KEY_AT = {
    "EVALSHA": 3, "XGROUP": 2, "XINFO": 2, "OBJECT": 2, "XREADGROUP": -2,
    "INFO": None, "PING": None, "SCRIPT": None, "CONFIG SET": None,
    "ACL": None, "TIME": None, "CLUSTER": None, "ECHO": None,
}  # fmt: skip
#: What a server that stands alone answers to CLUSTER SLOTS.
_NO_CLUSTER = "cluster support disabled"
#: In the place of a node's name: at the host that was asked, another port.
_NAMELESS = ("", "?")
#: Commands without a key go where this key is.
_HOME_KEY = "{ctl}"


@functools.lru_cache(maxsize=20_000)
def _slot_of_tag(tag: bytes) -> int:
    return redis.crc.key_slot(tag)


def slot_of(key: str | bytes) -> int:
    """The slot of a key or channel; of its hash tag, where it has one."""
    data = key.encode() if isinstance(key, str) else key
    start = data.find(b"{")
    end = data.find(b"}", start + 1)
    return _slot_of_tag(data[start + 1 : end] if 0 <= start < end - 1 else data)


def slot_of_command(command: nodes.Command) -> int:
    at = _KEY_AT.get(command[0], 1)
    return slot_of(_HOME_KEY if at is None else command[at])


@dataclass(frozen=True, slots=True)
class Map:
    """Who holds what.

    Attributes:
        owners: the primary of each slot; None = no node.
        replicas: the replicas of each primary.
    """

    owners: Sequence[connecting.Host | None]
    replicas: Mapping[connecting.Host, frozenset[connecting.Host]]

    @property
    def primaries(self) -> tuple[connecting.Host, ...]:
        return tuple(sorted({owner for owner in self.owners if owner}))


def read_map(reply: Sequence[Any], asked: connecting.Host) -> Map:
    """The reply to CLUSTER SLOTS; a node without an address of its own is the one asked."""
    owners: list[connecting.Host | None] = [None] * SLOTS
    replicas: dict[connecting.Host, frozenset[connecting.Host]] = {}
    for first, last, primary, *others in reply:
        owner = _host(primary, asked)
        owners[first : last + 1] = [owner] * (last + 1 - first)
        found = frozenset(_host(each, asked) for each in others)
        replicas[owner] = replicas.get(owner, frozenset()) | found
    return Map(owners, replicas)


def _host(entry: Sequence[Any], asked: connecting.Host) -> connecting.Host:
    name = entry[0].decode() if entry[0] else ""
    return (asked[0] if name in _NAMELESS else name, int(entry[1]))


#: Positions of commands by where these go: (host, asking).
_Round = dict[tuple[connecting.Host, bool], list[int]]


class Cluster:
    """``servers.Servers`` over the nodes of a cluster."""

    is_cluster = True

    def __init__(self, server: connecting.Server, *, connections: int) -> None:
        self.changes = changes.ServerChanges()
        self._server = server
        self._seeds = server.address().hosts
        self._teller = self._seeds[0]
        self._trouble = "no node of the cluster has been found"
        self._connections = connections
        self._nodes: dict[connecting.Host, nodes.Node] = {}
        self._health = nodes.NodeHealth(self._ping, self._note_answer)
        self._map = Map([None] * SLOTS, {})
        self._is_stale = True
        self._refreshing = asyncio.Lock()
        self._refreshed_at = float("-inf")

    # -- commands --------------------------------------------------------------------------------

    async def exchange_safely(
        self, commands: Sequence[nodes.Command], safety: nodes.Safety
    ) -> list[Any]:
        return await self._exchange(commands, confirmed=True, safety=safety)

    async def exchange(
        self, commands: Sequence[nodes.Command], *, confirmed: bool = False
    ) -> list[Any]:
        return await self._exchange(commands, confirmed=confirmed)

    async def _exchange(
        self,
        commands: Sequence[nodes.Command],
        *,
        confirmed: bool,
        safety: nodes.Safety | None = None,
    ) -> list[Any]:
        upheavals = self.changes.upheavals
        if self._is_stale:
            await self.refresh()
        slots = [slot_of_command(command) for command in commands]
        replies: list[Any] = [None] * len(commands)
        wanted = dict.fromkeys(range(len(commands)), "")
        held: set[int] = set()
        for _ in range(_MOST_HOPS):
            if confirmed and self.changes.upheavals != upheavals:
                held |= set(wanted)  # they were thought out for the node that was there before
                break
            sent = self._routed(slots, wanted, replies)
            await self._send(sent, commands, replies, confirmed=confirmed, safety=safety)
            wanted = await self._redirected(slots, wanted, replies)
            held |= _behind(commands, slots, wanted)
            if not any(wanted.values()):  # an ASK is waited for, a MOVED goes ahead of its reads
                wanted = dict.fromkeys(sorted({*wanted, *held}), "")
                held = set()
            if not wanted:
                break
        for position in held | set(wanted):
            replies[position] = redis.exceptions.TryAgainError("the slot is somewhere else now")
        self._note_troubles(replies)
        return replies

    def _routed(
        self, slots: Sequence[int], wanted: Mapping[int, str], replies: list[Any]
    ) -> _Round:
        """Where each command goes: to its slot's owner, or to the node that an ASK named."""
        sent: _Round = {}
        for position, asked in wanted.items():
            if asked:
                host, _, port = asked.rpartition(":")
                sent.setdefault(((host, int(port)), True), []).append(position)
                continue
            owner = self._map.owners[slots[position]]
            if owner is None:
                found_one = bool(self._map.primaries)
                trouble = "no node is known for the slot" if found_one else self._trouble
                replies[position] = redis.exceptions.ClusterDownError(f"CLUSTERDOWN {trouble}")
            else:
                sent.setdefault((owner, False), []).append(position)
        return sent

    async def _send(
        self,
        sent: _Round,
        commands: Sequence[nodes.Command],
        replies: list[Any],
        *,
        confirmed: bool,
        safety: nodes.Safety | None,
    ) -> None:
        async def send_to(host: connecting.Host, positions: Sequence[int], *, asking: bool) -> None:
            parts = [commands[position] for position in positions]
            if asking:
                parts = [part for command in parts for part in (("ASKING",), command)]
            found = await self._exchange_with(host, parts, confirmed=confirmed, safety=safety)
            for position, reply in zip(positions, found[asking :: 1 + asking], strict=True):
                replies[position] = reply

        groups = sent.items()
        if len(groups) == 1:
            (((host, asking), positions),) = groups
            await send_to(host, positions, asking=asking)
            return
        async with asyncio.TaskGroup() as group:
            for (host, asking), positions in groups:
                group.create_task(send_to(host, positions, asking=asking))

    async def _exchange_with(
        self,
        host: connecting.Host,
        commands: Sequence[nodes.Command],
        *,
        confirmed: bool = False,
        safety: nodes.Safety | None = None,
    ) -> list[Any]:
        if (trouble := self._health.of(host)) is not None:
            return [trouble] * len(commands)
        node = self._node(host)
        if safety is None:
            replies = await node.exchange(commands, confirmed=confirmed)
        else:
            replies = await node.exchange_safely(commands, safety)
        self._health.note(host, replies)
        return replies

    async def _redirected(
        self, slots: Sequence[int], sent: Mapping[int, str], replies: Sequence[Any]
    ) -> dict[int, str]:
        """What has to be sent again, in order, each with the node that an ASK named."""
        again: dict[int, str] = {}
        moved: dict[int, connecting.Host] = {}
        for position in sorted(sent):
            reply = replies[position]
            if isinstance(reply, redis.exceptions.MovedError):
                moved[slots[position]] = self._sent_to(slots[position], reply)
                again[position] = ""
            elif isinstance(reply, redis.exceptions.AskError):
                host, port = self._sent_to(slots[position], reply)
                again[position] = f"{host}:{port}"
        if moved:
            self._is_stale = True  # until a map was read that is newer than this
            await self.refresh()
            owners = list(self._map.owners)
            for slot, owner in moved.items():  # another node may not have heard of it yet
                owners[slot] = owner
            if owners != list(self._map.owners):
                self._take(Map(owners, self._map.replicas))
        return again

    def _sent_to(self, slot: int, error: redis.exceptions.AskError) -> connecting.Host:
        if error.host not in _NAMELESS:
            return (error.host, error.port)
        owner = self._map.owners[slot]
        return (owner[0] if owner else self._seeds[0][0], error.port)

    def _note_troubles(self, replies: Sequence[Any]) -> None:
        for reply in replies:
            if isinstance(
                reply,
                redis.exceptions.ConnectionError
                | OSError
                | redis.exceptions.ClusterDownError
                | redis.exceptions.MasterDownError
                | redis.exceptions.TimeoutError,
            ):
                self._is_stale = True

    async def everywhere(self, commands: Sequence[nodes.Command]) -> list[list[Any]]:
        if self._is_stale:
            await self.refresh()
        hosts = self._map.primaries
        if not hosts:
            trouble = redis.exceptions.ConnectionError(self._trouble)
            return [[trouble] * len(commands)]
        found = [asyncio.ensure_future(self._exchange_with(host, commands)) for host in hosts]
        replies = list(await asyncio.gather(*found))
        for each in replies:
            self._note_troubles(each)
        return replies

    async def keepalive(self) -> None:
        await asyncio.gather(*(node.keepalive() for node in list(self._nodes.values())))

    # -- who holds what --------------------------------------------------------------------------

    def hosts(self) -> tuple[connecting.Host, ...]:
        replicas = (each for hosts in self._map.replicas.values() for each in hosts)
        return tuple(dict.fromkeys((*self._map.primaries, *replicas)))

    async def refresh(self) -> None:
        seen = self._refreshed_at
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if self._refreshed_at != seen or now - seen < _LEAST_REFRESH_SECONDS:
                return
            await faults.reach(FaultPoint.BEFORE_CLUSTER_MAP)
            found = await self._ask_for_map()
            self._refreshed_at = asyncio.get_running_loop().time()
            if found is None:
                return
            self._is_stale = False
            self._take(found)

    async def _ask_for_map(self) -> Map | None:
        """Of the first node that answers: known primaries, then replicas, then the seeds."""
        hosts = dict.fromkeys((self._teller, *self.hosts(), *self._seeds))
        for host in sorted(hosts, key=lambda host: self._health.of(host) is not None):
            try:
                async with asyncio.timeout(_REFRESH_TIMEOUT_SECONDS):
                    (reply,) = await self._node(host).exchange([("CLUSTER", "SLOTS")])
            except TimeoutError:
                self._trouble = f"{host[0]}:{host[1]}: no answer"
                continue
            if isinstance(reply, Exception):
                said = f": {str(reply) or type(reply).__name__}"
                if _NO_CLUSTER in said:
                    said = " is no cluster; write redis:// instead of redis+cluster://"
                self._trouble = f"{host[0]}:{host[1]}{said}"
                continue
            if reply:
                self._teller = host
                return read_map(reply, host)
        return None

    def _take(self, found: Map) -> None:
        former, self._map = self._map, found
        self._health.keep(found.primaries)
        for host, node in self._nodes.items():
            node.replicas = len(found.replicas.get(host, ()))
        if list(found.owners) == list(former.owners):
            return
        if _is_failover(former, found):
            log.warning("a replica has become primary; what was written last may be lost")
            self.changes.note_upheaval()
        self.changes.note_change()

    def _node(self, host: connecting.Host) -> nodes.Node:
        if host not in self._nodes:
            self._nodes[host] = nodes.Node(
                self._server,
                host,
                connections=self._connections,
                on_upheaval=self.changes.note_upheaval,
                takes_replicas=True,
            )
            self._nodes[host].replicas = len(self._map.replicas.get(host, ()))
        return self._nodes[host]

    def homes(self, names: Sequence[str]) -> Mapping[Hashable, Sequence[str]]:
        homes: dict[Hashable, list[str]] = {}
        for name in names:
            owner = self._map.owners[slot_of(name)]
            if owner is not None:
                homes.setdefault(owner, []).append(name)
        return homes

    def listener(self, home: Hashable) -> redis.asyncio.Redis:
        return nodes.Node(
            self._server,
            cast("connecting.Host", home),
            connections=1,
            on_upheaval=self.changes.note_upheaval,
            takes_replicas=True,
        ).client

    async def _ping(self, host: connecting.Host) -> object:
        (reply,) = await self._node(host).exchange([("PING",)])
        return reply

    def _note_answer(self) -> None:
        self._is_stale = True  # what it held may be another's by now

    async def close(self) -> None:
        await self._health.close()
        for node in self._nodes.values():
            await node.close()


def _behind(
    commands: Sequence[nodes.Command], slots: Sequence[int], redirected: Mapping[int, str]
) -> set[int]:
    """What stands behind a redirected command of its slot and is no script: to be asked again."""
    first: dict[int, int] = {}
    for position in redirected:
        first.setdefault(slots[position], position)
    return {
        position
        for position, command in enumerate(commands)
        if position > first.get(slots[position], len(commands))
        and command[0] != "EVALSHA"
        and position not in redirected
    }


def _is_failover(former: Map, found: Map) -> bool:
    """A slot has an owner now that was no primary when it had another one."""
    primaries = set(former.primaries)
    changed = {
        after
        for before, after in zip(former.owners, found.owners, strict=True)
        if before is not None and after is not None and before != after
    }
    return bool(changed - primaries)
