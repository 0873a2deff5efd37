"""The connections of one process to the simulated Valkey; a ``delayqueue.wire.servers.Servers``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import redis.exceptions

from duepoint.delayqueue.wire import connecting, nodes
from tests.simulation.loop import Process, running_process
from tests.simulation.network import Network, Reset
from tests.support.virtualvalkey import SimulatedValkey

#: As in ``nodes``.
_NEWLY_MET_SECONDS = 5.0
_PLAIN = frozenset({"EVALSHA", "HMGET"})


class RedisSide:
    """The server, its subscribers, and whether it can be reached.

    Attributes:
        down_until_us: it refuses connections until then.
    """

    def __init__(self, valkey: SimulatedValkey, network: Network) -> None:
        self.valkey = valkey
        self.network = network
        self.down_until_us = 0
        self.listeners: list[Listener] = []

    @property
    def is_down(self) -> bool:
        return self.network.loop.now_us < self.down_until_us

    def carry_out(self, commands: Sequence[Any], run: int) -> list[Any]:
        """Carry out one round trip of a connection to the server process with this run number."""
        self.check(run)
        replies = self.valkey.carry_out(commands)
        if any(command[0] == "EVALSHA" for command in commands):
            self._publish()
        return replies

    def check(self, run: int) -> None:
        if self.is_down or run != self.valkey.run:
            raise Reset("Connection lost")

    def drop_connections(self) -> None:
        """Drop all connections; subscribers notice it at once."""
        for listener in self.listeners:
            listener.lose()
        self.listeners = []

    def _publish(self) -> None:
        loop = self.network.loop
        for channel, data in self.valkey.published():
            for listener in self.listeners:
                if channel in listener.channels:
                    at_us = max(listener.last_us + 1, loop.now_us + self.network.way_us())
                    listener.last_us = at_us
                    message = {"type": "smessage", "channel": channel.encode(), "data": data}
                    loop.in_world_at(at_us, listener.hear, message)


class SimulatedServers:
    """The stand-in for ``OneServer`` in a simulated process."""

    is_cluster = False

    def __init__(self, redis: RedisSide) -> None:
        self.changes = nodes.ServerChanges()
        self._redis = redis
        self._met: int | None = None
        self._met_at = 0.0

    async def exchange(
        self,
        commands: Sequence[nodes.Command],
        *,
        confirmed: bool = False,
        safety: nodes.Safety | None = None,
    ) -> list[Any]:
        """See ``nodes.Node``; there is no replica, and the disk is as safe as the memory."""
        if not commands:
            return []
        try:
            async with asyncio.timeout(nodes.COMMAND_TIMEOUT_SECONDS):
                replies = await self._send(commands, confirmed=confirmed)
                alone = [1, 0] if safety and safety.on_disk else 0
                return nodes.as_safe_as(safety, alone, replies) if safety else replies
        except (redis.exceptions.RedisError, OSError) as error:
            wrapped = error if isinstance(error, TimeoutError) else _library_error(error)
            return [wrapped] * len(commands)

    async def _send(self, commands: Sequence[nodes.Command], *, confirmed: bool) -> list[Any]:
        valkey = self._redis.valkey
        if self._met != valkey.run or self._redis.is_down:
            await self._meet(confirmed=confirmed)
        run = self._met
        assert run is not None
        is_plain = all(command[0] in _PLAIN for command in commands)
        who = self._who() if is_plain else ""
        sent = [(*each[:-1], who) if each[-1] is nodes.RUN_ID else each for each in commands]
        text = " ".join(valkey.describe(each) for each in sent[:6])
        more = f" and {len(sent) - 6} more" if len(sent) > 6 else ""
        replies = await self._redis.network.ask(
            "redis", text + more, lambda: self._redis.carry_out(sent, run)
        )
        if run != valkey.run:
            raise redis.exceptions.ConnectionError("Connection lost")
        return list(replies)

    async def _meet(self, *, confirmed: bool) -> None:
        """Open a new connection; announce an upheaval if another server answers."""
        if self._redis.is_down:
            await asyncio.sleep(0.001)
            raise redis.exceptions.ConnectionError("Error 111 connecting to redis:6379.")
        await asyncio.sleep(self._redis.network.way_us() / 1e6)
        met, self._met = self._met, self._redis.valkey.run
        if met == self._met:
            return
        self._met_at = asyncio.get_running_loop().time()
        if met is not None:
            self.changes.note_upheaval()
            if confirmed:
                raise connecting.ServerChanged("the server was replaced; try again")

    def _who(self) -> str:
        seconds = asyncio.get_running_loop().time() - self._met_at
        run_id = self._redis.valkey.run_id
        return f"{run_id} {seconds * 1e6:.0f}" if seconds < _NEWLY_MET_SECONDS else run_id

    async def everywhere(self, commands: Sequence[nodes.Command]) -> list[list[Any]]:
        return [await self.exchange(commands)]

    async def keepalive(self) -> None:
        """Send a command that detects a connection that died silently."""

    async def refresh(self) -> None:
        """Meet the server again if it has been replaced."""
        valkey = self._redis.valkey
        if self._met is not None and self._met != valkey.run and not self._redis.is_down:
            await self._meet(confirmed=False)

    def hosts(self) -> tuple[connecting.Host, ...]:
        return (("redis", 6379),)

    def homes(self, names: Sequence[str]) -> Mapping[Hashable, Sequence[str]]:
        return {"": tuple(names)}

    def listener(self, home: Hashable) -> Any:
        del home
        return ListeningClient(self._redis)

    async def close(self) -> None:
        pass


def _library_error(error: BaseException) -> BaseException:
    if isinstance(error, redis.exceptions.RedisError):
        return error
    return redis.exceptions.ConnectionError(str(error))


class ListeningClient:
    """The part of ``redis.asyncio.Redis`` that a subscription needs."""

    def __init__(self, redis: RedisSide) -> None:
        self._redis = redis

    def pubsub(self) -> Listener:
        return Listener(self._redis)

    async def aclose(self, *, close_connection_pool: bool) -> None:
        del close_connection_pool


class Listener:
    """One subscription, as ``redis.asyncio.client.PubSub``."""

    def __init__(self, redis: RedisSide) -> None:
        self._redis = redis
        self._messages: deque[dict[str, Any] | Exception] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.channels: set[str] = set()
        self.last_us = 0
        self.process: Process = running_process.get()

    async def ssubscribe(self, *channels: str) -> None:
        """Send the command only, as the library does: confirmations and errors come as messages."""
        side = self._redis
        if side.is_down:
            await asyncio.sleep(0.001)
            raise redis.exceptions.ConnectionError("Error 111 connecting to redis:6379.")
        side.network.ask_nowait(
            "redis", "SSUBSCRIBE", lambda: self._subscribed(channels), self._hear_trouble
        )

    def _hear_trouble(self, reply: asyncio.Future[None]) -> None:
        if not reply.cancelled() and (error := reply.exception()) is not None:
            self.hear(_library_error(error))

    def _subscribed(self, channels: Sequence[str]) -> None:
        if self._redis.is_down:
            raise Reset("Connection lost")
        for channel in channels:
            self.channels.add(channel)
            self.hear({"type": "ssubscribe", "channel": channel.encode(), "data": 1})
        self._redis.listeners.append(self)

    async def get_message(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - the library's name
    ) -> dict[str, Any] | None:
        if not self._messages:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout):
                    await self._waiter
            except TimeoutError:
                return None
            finally:
                self._waiter = None
        found = self._messages.popleft()
        if isinstance(found, Exception):
            raise found
        return found

    async def ping(self) -> None:
        """Send the command only: the answer is a message, and may never come."""

        def answer() -> None:
            if self not in self._redis.listeners:
                raise Reset("Connection lost")

        self._redis.network.ask_nowait("redis", "PING", answer, self._hear_pong)

    def _hear_pong(self, reply: asyncio.Future[None]) -> None:
        if not reply.cancelled() and reply.exception() is None:
            self.hear({"type": "pong", "channel": b"", "data": b""})
        else:
            self._hear_trouble(reply)

    async def aclose(self) -> None:
        if self in self._redis.listeners:
            self._redis.listeners.remove(self)

    def hear(self, message: dict[str, Any] | Exception) -> None:
        self._messages.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def lose(self) -> None:
        self.hear(redis.exceptions.ConnectionError("Connection closed by server."))
