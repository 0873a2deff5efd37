"""Listens to one channel of every shard, for as long as the process lives.

There is one connection for each server that has some of the channels. On a single server one
subscription names them all; in a cluster each has its own (two slots in one command are refused). A
listener must subscribe, then read, then sleep: ``on_subscribed`` is called when a server has
confirmed all of its channels, at the start, after each reconnect and after a channel moved to
another node, because messages published in between are lost. A PING every ten seconds finds a
connection that died silently; no other command is ever sent on it. Sharded channels
(SSUBSCRIBE) are used on a single server too, so that a cluster needs nothing else. Errors end in a
reconnect after a short, jittered wait, and are logged once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import redis.asyncio
import redis.asyncio.client
import redis.exceptions
import structlog

from duepoint import clock as clocks
from duepoint import faults
from duepoint.delayqueue.wire import servers as servers_
from duepoint.faults import FaultPoint

log = structlog.get_logger(__name__)

KEEPALIVE_SECONDS = 10.0
#: How long its answer may take.
ANSWER_SECONDS = 5.0
_RECONNECT_SECONDS = (0.05, 0.25)
#: The longest wait between two connects: points due before it succeeds may wait for the leader.
_SLOWEST_RECONNECT_SECONDS = 0.5
#: Wait before the cluster's map is read again if it has no node for a channel.
_HOMELESS_SECONDS = 0.5


class _Moved(Exception):
    """A channel has moved to another node."""


class Subscription:
    """Calls back on messages; owns its connections and its tasks."""

    def __init__(
        self,
        servers: servers_.Servers,
        channels: Sequence[str],
        *,
        on_subscribed: Callable[[], None],
        on_message: Callable[[str, bytes], None],
        clock: clocks.Clock,
    ) -> None:
        self._clock = clock
        self._servers = servers
        self._channels = channels
        self._on_subscribed = on_subscribed
        self._on_message = on_message
        self._task: asyncio.Task[None] | None = None
        #: Servers whose loss was logged, whichever task listens to them now.
        self._lost: set[Hashable] = set()

    async def start(self) -> None:
        """Listen from now on; does not wait for the first confirmation."""
        self._task = asyncio.create_task(self._run(), name="queue subscription")

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Listen to each server that has channels; begin anew when channels have moved."""
        while True:
            homes = self._servers.homes(self._channels)
            async with asyncio.TaskGroup() as listeners:
                tasks = [
                    listeners.create_task(self._listen_at(home, channels))
                    for home, channels in homes.items()
                ]
                while homes == self._servers.homes(self._channels):
                    seen = self._servers.changes.generation
                    is_homeless = sum(map(len, homes.values())) < len(self._channels)
                    if is_homeless:
                        await self._servers.refresh()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_HOMELESS_SECONDS if is_homeless else None):
                            await self._servers.changes.wait_for_change(seen)
                for task in tasks:
                    task.cancel()

    async def _listen_at(self, home: Hashable, channels: Sequence[str]) -> None:
        client = self._servers.listener(home)
        failures = 0
        try:
            while True:
                try:
                    await self._listen(client, home, channels)
                except _Moved:
                    await self._servers.refresh()
                except (redis.exceptions.RedisError, OSError) as error:
                    failures += 1
                    if home not in self._lost:
                        self._lost.add(home)
                        log.warning("subscription lost", error=str(error))
                    await self._servers.refresh()
                except Exception:  # a message of another version must not end all waking
                    failures += 1
                    log.exception("subscription failed on a message")
                else:
                    failures = 0
                wait = random.uniform(*_RECONNECT_SECONDS) * 2 ** min(failures, 5)  # noqa: S311
                await self._clock.sleep(min(wait, _SLOWEST_RECONNECT_SECONDS))
        finally:
            await client.aclose(close_connection_pool=True)  # type: ignore[attr-defined,unused-ignore]

    async def _listen(
        self, client: redis.asyncio.Redis, home: Hashable, channels: Sequence[str]
    ) -> None:
        """Listen until the connection is lost; raises if it never was good."""
        pubsub = client.pubsub()
        confirmed = 0
        try:
            await faults.reach(FaultPoint.BEFORE_SUBSCRIPTION)
            await self._subscribe(pubsub, channels)
            await faults.reach(FaultPoint.AFTER_SUBSCRIPTION)
            while True:
                message = await self._next(pubsub, is_confirmed=confirmed >= len(channels))
                if message["type"] == "ssubscribe":
                    confirmed += 1
                    if confirmed == len(channels):
                        self._lost.discard(home)
                        self._on_subscribed()
                elif message["type"] == "smessage":
                    self._on_message(message["channel"].decode(), message["data"])
                elif message["type"] == "sunsubscribe":  # never asked for: its slot has moved
                    raise _Moved
        except redis.exceptions.MovedError as moved:
            raise _Moved from moved
        except (redis.exceptions.RedisError, OSError):
            if confirmed < len(channels):
                raise
            log.info("subscription was interrupted; connecting again")
            await self._servers.refresh()
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call,unused-ignore]

    async def _subscribe(
        self, pubsub: redis.asyncio.client.PubSub, channels: Sequence[str]
    ) -> None:
        if not self._servers.is_cluster:
            await pubsub.ssubscribe(*channels)
            return
        for channel in channels:
            await pubsub.ssubscribe(channel)

    async def _next(
        self, pubsub: redis.asyncio.client.PubSub, *, is_confirmed: bool
    ) -> dict[str, Any]:
        """Return the next message; raises if a confirmation, or a keepalive's answer, is missing.

        An answered keepalive does not replace a confirmation: a proxy may have lost only the
        subscription, and a worker that waits for wake-ups would wait for ever.
        """
        seconds = KEEPALIVE_SECONDS if is_confirmed else ANSWER_SECONDS
        message = await pubsub.get_message(timeout=seconds)
        if message is None and not is_confirmed:
            raise redis.exceptions.TimeoutError("no answer to the subscription")
        if message is None:
            await pubsub.ping()
            message = await pubsub.get_message(timeout=ANSWER_SECONDS)
        if message is None:
            raise redis.exceptions.TimeoutError("no answer to the keepalive")
        return dict(message)
