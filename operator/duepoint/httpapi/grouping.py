"""Sends requests that arrive together to the queue together.

A script for one member costs the server and us nearly as much as one for fifty. So what is asked
while a batch is under way is the next batch; when nothing is under way a request goes at once, with
what else arrived in this turn of the loop. An idle API adds no delay, a busy one gets cheaper. Two
batches at a time made each half as large, and p99 of creates a third worse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

#: Items of one batch; more wait for the next one.
MOST_TOGETHER = 400

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class Grouping(Generic[KeyT, ItemT, AnswerT]):
    """Batches of items with equal keys, one batch of a key at a time."""

    def __init__(self, send: Callable[[KeyT, list[ItemT]], Awaitable[Sequence[AnswerT]]]) -> None:
        """``send`` answers in the order of the items; what it raises, every one of them gets."""
        self._send = send
        self._waiting: dict[KeyT, list[tuple[ItemT, asyncio.Future[AnswerT]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: KeyT, item: ItemT) -> AnswerT:
        """The answer to one item."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[AnswerT] = loop.create_future()
        if key in self._waiting:
            self._waiting[key].append((item, answer))
        else:
            self._waiting[key] = [(item, answer)]
            task = loop.create_task(self._send_all(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _send_all(self, key: KeyT) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                batch = waiting[:MOST_TOGETHER]
                del waiting[:MOST_TOGETHER]
                await self._carry_out(key, batch)
        finally:
            del self._waiting[key]

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
