"""What every part of the delay queue shares: the servers, the scripts, the names, the layout.

Owns the connections (``servers``) and what is known of the index. Replies come back through here
with the library's errors translated; nobody else in the package sees one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import redis.asyncio

from duepoint import clock as clocks
from duepoint import errors
from duepoint.delayqueue import keys, messages, sharding
from duepoint.delayqueue import quotas as quotas_
from duepoint.delayqueue.definitions import interning, seal
from duepoint.delayqueue.firing import foresight
from duepoint.delayqueue.resharding import ownership
from duepoint.delayqueue.wire import connecting, gathering, scripting, serverclock, servers

#: Plain reading commands that one caller wants answered together.
Commands = Sequence[tuple[Any, ...]]


class Core:
    """Base of the queue's parts."""

    def __init__(
        self,
        url: str,
        *,
        blob_key: bytes,
        prefix: str = keys.DEFAULT_PREFIX,
        clock: clocks.Clock | None = None,
        connections: int = 8,
        password_file: Path | None = None,
        server: connecting.Server | None = None,
        opened: servers.Servers | None = None,
        buckets: int = keys.BUCKETS,
        quotas: quotas_.Quotas = quotas_.USUAL,
    ) -> None:
        self._server = server or connecting.Server(url=url, password_file=password_file)
        self._clock: clocks.Clock = clock or clocks.SystemClock()
        self._servers = opened or servers.open_servers(self._server, connections=connections)
        self._scripts = scripting.Scripts(self._servers)
        self._gathered = gathering.Gathering(self._scripts.run_many)
        self._gathered_appends = gathering.Gathering(self._scripts.run_many)
        self._gathered_durably = gathering.Gathering(self._scripts.run_many_durably)
        self._gathered_reads = gathering.Gathering(self._read_each)
        self._keys = keys.Keys(prefix)
        self._seal = seal.Seal(blob_key)
        self._layout: messages.Layout | None = None
        self._owner: ownership.Owner | None = None
        self._wanted_shards = 0
        #: Of a new index; one that exists says its own number.
        self._buckets = buckets
        self._quotas = quotas
        self._interned = interning.Interned()
        # A server that went back in time gives the numbers of what it forgot to other texts.
        self._servers.on_upheaval.append(self._interned.forget_all)
        self._server_clock = serverclock.ServerClock(self._clock)
        self._foresight = foresight.Foresight()

    async def start(self) -> None:
        await self._scripts.load()

    async def close(self) -> None:
        await self._servers.close()

    def belong_to(self, owner: ownership.Owner) -> None:
        self._owner = owner
        self._scripts.owner = owner.mark  # or the mark that the layout turns out to have

    @property
    def upheavals(self) -> int:
        """How often a server turned out not to be the one it was: writes may be lost."""
        return self._servers.upheavals

    def server_hosts(self) -> tuple[connecting.Host, ...]:
        """Hosts and ports of the servers that were found out about, beside those of the URL."""
        return self._servers.hosts()

    @property
    def _client(self) -> redis.asyncio.Redis:
        """Of the one server; tests look behind the queue's back with it."""
        return cast("servers.OneServer", self._servers).node.client

    def _known_layout(self) -> messages.Layout:
        if self._layout is None:
            raise scripting.Uninitialised("the layout has not been read: call layout() first")
        return self._layout

    def _shard(self, shard: messages.ShardId) -> keys.ShardKeys:
        self._known_layout()
        return self._keys.shard(sharding.layout_of(shard), sharding.index_of(shard))

    async def _read_each(self, groups: list[Commands]) -> list[Any]:
        """Replies of groups of plain reading commands, in one round trip."""
        replies = iter(await self._servers.exchange(list(itertools.chain.from_iterable(groups))))
        return [_whole(list(itertools.islice(replies, len(group)))) for group in groups]

    async def _read(self, attempted: str, *commands: tuple[Any, ...]) -> list[Any]:
        """Replies of plain reading commands, in one round trip."""
        return scripting.good(await self._servers.exchange(commands), attempted)


def _whole(replies: list[Any]) -> list[Any] | errors.DuepointError:
    """The replies of one group; the first error stands for all of them."""
    for reply in replies:
        if isinstance(reply, Exception):
            return scripting.translated(reply, "read")
    return replies
