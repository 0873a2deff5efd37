"""Where the commands of the queue go: to one server, or to the nodes of a cluster.

``Servers`` is what the queue's parts hold. They give commands with whole keys and get replies in
order; that a shard lives elsewhere, or just moved, is not their affair. ``homes`` says which
channels are heard where, for subscriptions; ``changes.generation`` grows when that may differ.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import redis.asyncio

from duepoint import redisurl
from duepoint.delayqueue.wire import cluster, connecting, nodes

Command = nodes.Command


class Servers(Protocol):
    """One server, or many that share the keys."""

    @property
    def changes(self) -> nodes.ServerChanges:
        """What has changed about them since they were opened."""
        ...

    async def exchange(self, commands: Sequence[Command], *, confirmed: bool = False) -> list[Any]:
        """The replies in order; an error stands in the place of its reply.

        Commands of one shard are carried out in their order. Where a script went to another node,
        what stands behind it for the same shard and is no script is asked again after it.

        Args:
            confirmed: for what arms: wait a moment for a replica to have it, where there is one,
                and send nothing to a server that took over since the call (its interned numbers
                may be others).
        """
        ...

    async def exchange_safely(self, commands: Sequence[Command], safety: nodes.Safety) -> list[Any]:
        """As ``exchange`` of what arms; what is not as safe in time is answered ``Unconfirmed``."""
        ...

    async def everywhere(self, commands: Sequence[Command]) -> list[list[Any]]:
        """The replies of every primary."""
        ...

    async def keepalive(self) -> None:
        """Ask on every idle connection; close what died without a word."""
        ...

    async def refresh(self) -> None:
        """Look again at who holds what and who has replicas; raises nothing of the servers'."""
        ...

    def hosts(self) -> tuple[connecting.Host, ...]:
        """Every server that was found out about, beside those of the URL."""
        ...

    def homes(self, names: Sequence[str]) -> Mapping[Hashable, Sequence[str]]:
        """Keys or channels by the place that they live in."""
        ...

    def listener(self, home: Hashable) -> redis.asyncio.Redis:
        """A client for one subscription there; the caller closes it."""
        ...

    @property
    def is_cluster(self) -> bool: ...

    async def close(self) -> None: ...


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

    async def exchange_safely(self, commands: Sequence[Command], safety: nodes.Safety) -> list[Any]:
        return await self.exchange(commands, safety=safety)

    async def everywhere(self, commands: Sequence[Command]) -> list[list[Any]]:
        return [await self.exchange(commands)]

    def homes(self, names: Sequence[str]) -> Mapping[Hashable, Sequence[str]]:
        return {"": tuple(names)}

    def listener(self, home: Hashable) -> redis.asyncio.Redis:  # noqa: ARG002 - there is one
        return self._open(connections=1).client


def open_servers(server: connecting.Server, *, connections: int = 8) -> Servers:
    """What the URL leads to; raises InvalidSetting where it is none. Does not connect."""
    if server.address().kind is redisurl.ServerKind.CLUSTER:
        return cluster.Cluster(server, connections=connections)
    return OneServer(server, connections=connections)
