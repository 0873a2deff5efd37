"""The leader's look at every server, every few seconds.

Each idle connection is asked whether it lives, so that one that died without a word is closed
before somebody needs it; the map of a cluster and the number of replicas are read again; and of
each server one shard is asked for, because a server that was emptied has lost all of its own. That
a server is not the one it was shows in ``upheavals`` of the queue.
"""

from __future__ import annotations

from duepoint.delayqueue import core, messages, sharding
from duepoint.delayqueue.wire import scripting


class Keepalive(core.Core):
    """keepalive."""

    async def keepalive(self) -> tuple[messages.ShardId, ...]:
        """Shards that are gone, one for each server concerned."""
        await self._servers.keepalive()
        await self._servers.refresh()
        if self._layout is None:
            return ()
        shards = {self._shard(shard).meta: shard for shard in sharding.all_shards(self._layout)}
        asked = [names[0] for names in self._servers.homes(tuple(shards)).values()]
        replies = await self._servers.exchange([("HGET", meta, "layout") for meta in asked])
        scripting.good(replies, "look for the shards")
        return tuple(
            shards[meta] for meta, found in zip(asked, replies, strict=True) if found is None
        )
