"""Which nodes of a cluster do not answer, so that only their own shards wait for them.

A command without an answer is given up after five seconds, and whatever was asked of other nodes in
the same call waits as long. So that happens once: a node that has let a command time out is asked
nothing more but a PING, by a task of its own, until it answers or is no primary any more. A node
that refuses connections needs none of this, because it fails at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import redis.exceptions

from duepoint.delayqueue.wire import connecting

#: From one question to the next.
_ASK_SECONDS = 0.25

#: Asks a node whether it is there; its reply, or an error in the place of it.
Ask = Callable[[connecting.Host], Awaitable[object]]


class Silence:
    """Remembers silent nodes, and notices when they answer again."""

    def __init__(self, ask: Ask, on_answer: Callable[[], None]) -> None:
        self._ask = ask
        self._on_answer = on_answer
        self._asking: dict[connecting.Host, asyncio.Task[None]] = {}

    def note(self, host: connecting.Host, replies: Iterable[object]) -> None:
        """What this node has replied."""
        if host not in self._asking and any(map(_is_silence, replies)):
            task = asyncio.create_task(self._wait_for(host), name=f"silence of {host[0]}:{host[1]}")
            self._asking[host] = task

    def of(self, host: connecting.Host) -> Exception | None:
        """What stands for its replies; None where it is to be asked."""
        if host not in self._asking:
            return None
        return redis.exceptions.TimeoutError(f"{host[0]}:{host[1]} has not answered for a while")

    def keep(self, hosts: Iterable[connecting.Host]) -> None:
        """Nobody else is asked for anything any more."""
        for host in self._asking.keys() - set(hosts):
            self._asking.pop(host).cancel()

    async def close(self) -> None:
        """Ask no more."""
        asking = list(self._asking.values())
        self._asking.clear()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _wait_for(self, host: connecting.Host) -> None:
        try:
            while _is_silence(await self._ask(host)):  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(_ASK_SECONDS)
        finally:  # whatever went wrong with the question, the node is not given up for ever
            if self._asking.get(host) is asyncio.current_task():
                del self._asking[host]
                self._on_answer()


def _is_silence(reply: object) -> bool:
    return isinstance(reply, TimeoutError | redis.exceptions.TimeoutError)
