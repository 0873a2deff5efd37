"""One connection that listens to one channel of every shard, for as long as the process lives.

Whoever listens must subscribe, then read, then sleep: ``on_subscribed`` is called when the server
has confirmed every channel, at the start and after each reconnect, because what was published in
between is gone. A PING every ten seconds finds a connection that died without saying so; no
other command is ever sent on it. Sharded channels (SSUBSCRIBE) are used on a single server too,
so that a cluster needs nothing else. Errors end in a reconnect after a short, jittered wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import redis.asyncio
import redis.asyncio.client
import redis.exceptions
import structlog

from duepoint.delayqueue import core

log = structlog.get_logger(__name__)

KEEPALIVE_SECONDS = 10.0
_RECONNECT_SECONDS = (0.05, 0.25)
_SLOWEST_RECONNECT_SECONDS = 2.0


class Subscription:
    """Calls back on messages; owns its connection and its task."""

    def __init__(
        self,
        server: core.Server,
        channels: Sequence[str],
        *,
        on_subscribed: Callable[[], None],
        on_message: Callable[[str, bytes], None],
    ) -> None:
        self._client = core.make_client(server, connections=1)
        self._channels = channels
        self._on_subscribed = on_subscribed
        self._on_message = on_message
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen from now on; does not wait for the first confirmation."""
        self._task = asyncio.create_task(self._run(), name="queue subscription")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._client.aclose()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen()
            except (redis.exceptions.RedisError, OSError) as error:
                failures += 1
                log.warning("subscription lost", error=str(error), failures=failures)
            except Exception:  # a message of another version must not end all waking
                failures += 1
                log.exception("subscription failed on a message")
            else:
                failures = 0
            wait = random.uniform(*_RECONNECT_SECONDS) * 2 ** min(failures, 5)  # noqa: S311
            await asyncio.sleep(min(wait, _SLOWEST_RECONNECT_SECONDS))

    async def _listen(self) -> None:
        """Until the connection is lost: returns if it was good, raises if it never was."""
        pubsub = self._client.pubsub()
        confirmed = 0
        try:
            await pubsub.ssubscribe(*self._channels)
            while True:
                message = await self._next(pubsub)
                if message["type"] == "ssubscribe":
                    confirmed += 1
                    if confirmed == len(self._channels):
                        self._on_subscribed()
                elif message["type"] == "smessage":
                    self._on_message(message["channel"].decode(), message["data"])
        except (redis.exceptions.RedisError, OSError):
            if confirmed < len(self._channels):
                raise
            log.info("subscription was interrupted; connecting again")
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call,unused-ignore]

    async def _next(self, pubsub: redis.asyncio.client.PubSub) -> dict[str, Any]:
        message = await pubsub.get_message(timeout=KEEPALIVE_SECONDS)
        if message is None:
            await pubsub.ping()
            message = await pubsub.get_message(timeout=KEEPALIVE_SECONDS / 2)
        if message is None:
            raise redis.exceptions.TimeoutError("no answer to the keepalive")
        return dict(message)
