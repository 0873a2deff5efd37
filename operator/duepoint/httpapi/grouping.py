"""Requests that arrive together go to the queue together.

A script for one member costs the server and us nearly as much as one for fifty. So what is asked
while a batch is under way is the next batch; when nothing is under way a request goes at once, with
what else arrived in this turn of the loop. An idle API adds no delay, a busy one gets cheaper. Two
batches at a time made each of them half as large, and the 99th percentile of creates a third worse.
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


class Grouping(Generic[KeyT, ItemT, AnswerT]):
    """Puts items with equal keys together."""

    def __init__(self, send: Callable[[KeyT, list[ItemT]], Awaitable[Sequence[AnswerT]]]) -> None:
        """``send`` answers in the order of the items; what it raises, every one of them gets."""
        self._send = send
        self._waiting: dict[KeyT, collections.deque[tuple[ItemT, asyncio.Future[AnswerT]]]] = {}
        self._under_way: set[KeyT] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: KeyT, item: ItemT) -> AnswerT:
        """The answer to one item."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[AnswerT] = loop.create_future()
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = collections.deque()
        waiting.append((item, answer))
        if len(waiting) == 1 and key not in self._under_way:
            loop.call_soon(self._begin, key)
        return await answer

    def _begin(self, key: KeyT) -> None:
        waiting = self._waiting.get(key)
        if not waiting or key in self._under_way:
            return
        batch = [waiting.popleft() for _ in range(min(len(waiting), MOST_TOGETHER))]
        if not waiting:
            del self._waiting[key]
        self._under_way.add(key)
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
            self._under_way.discard(key)
            self._begin(key)
