"""Requests that arrive together go to the queue together.

A script for one member costs the server and us nearly as much as one for fifty. So what is asked
while a batch is under way is the next batch; when nothing is under way a request goes at once, with
what else arrived in this turn of the loop. An idle API adds no delay, a busy one gets cheaper.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

#: Items of one batch; more wait for the next one.
MOST_TOGETHER = 400
#: Batches of one key under way: while the server works on one, the other is being put together.
_UNDER_WAY = 2


class Grouping(Generic[KeyT, ItemT, AnswerT]):
    """Puts items with equal keys together."""

    def __init__(self, send: Callable[[KeyT, list[ItemT]], Awaitable[Sequence[AnswerT]]]) -> None:
        """``send`` answers in the order of the items; what it raises, every one of them gets."""
        self._send = send
        self._waiting: dict[KeyT, collections.deque[tuple[ItemT, asyncio.Future[AnswerT]]]] = {}
        self._under_way: collections.Counter[KeyT] = collections.Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: KeyT, item: ItemT) -> AnswerT:
        """The answer to one item."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[AnswerT] = loop.create_future()
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = collections.deque()
        waiting.append((item, answer))
        if len(waiting) == 1 and self._under_way[key] < _UNDER_WAY:
            loop.call_soon(self._begin, key)
        return await answer

    def _begin(self, key: KeyT) -> None:
        waiting = self._waiting.get(key)
        if not waiting or self._under_way[key] >= _UNDER_WAY:
            return
        batch = [waiting.popleft() for _ in range(min(len(waiting), MOST_TOGETHER))]
        if not waiting:
            del self._waiting[key]
        self._under_way[key] += 1
        task = asyncio.get_running_loop().create_task(self._carry_out(key, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(
        self, key: KeyT, batch: list[tuple[ItemT, asyncio.Future[AnswerT]]]
    ) -> None:
        try:
            answers = await self._send(key, [item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - the callers get it
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
            self._begin(key)
