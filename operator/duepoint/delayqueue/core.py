"""What every part of the delay queue shares: the connection, the scripts, the names, the layout.

Owns the client and its settings. RESP2 is pinned (reply shapes differ under RESP3); no command is
repeated by the library (a lost reply may hide an applied script); a cancelled or timed-out
command closes its connection, so that no later command reads a reply that is not its own
(redis-py does that, and a test holds it to it). Commands time out after five seconds, half of the
shortest sensible lease.
"""

from __future__ import annotations

from typing import Any

import redis.asyncio
import redis.asyncio.retry
import redis.backoff

from duepoint import clock as clocks
from duepoint import errors
from duepoint.delayqueue import interning, keys, messages, scripting, seal

COMMAND_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 5.0


def make_client(url: str, *, connections: int) -> redis.asyncio.Redis:
    """A client on its own pool; raises InvalidSetting on a URL that is none. Does not connect."""
    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            protocol=2,
            max_connections=connections,
            timeout=COMMAND_TIMEOUT_SECONDS,
            socket_timeout=COMMAND_TIMEOUT_SECONDS,
            socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
            socket_keepalive=True,
            retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
        )
    except ValueError as error:
        raise errors.InvalidSetting("redis_url", str(error)) from error
    return redis.asyncio.Redis.from_pool(pool)


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
    ) -> None:
        self._url = url
        self._clock: clocks.Clock = clock or clocks.SystemClock()
        self._client = make_client(url, connections=connections)
        self._scripts = scripting.Scripts(self._client)
        self._keys = keys.Keys(prefix)
        self._seal = seal.Seal(blob_key)
        self._layout: messages.Layout | None = None
        self._buckets = keys.BUCKETS
        self._interned = interning.Interned()

    async def start(self) -> None:
        await self._scripts.load()

    async def close(self) -> None:
        await self._client.aclose(close_connection_pool=True)  # type: ignore[attr-defined,unused-ignore]

    def _known_layout(self) -> messages.Layout:
        if self._layout is None:
            raise scripting.Uninitialised("the layout has not been read: call layout() first")
        return self._layout

    def _shard(self, shard: messages.ShardId) -> keys.ShardKeys:
        return self._keys.shard(self._known_layout().number, shard)

    async def _read(self, attempted: str, *commands: tuple[Any, ...]) -> list[Any]:
        """Replies of plain reading commands, in one round trip."""
        with scripting.translating(attempted):
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute()
