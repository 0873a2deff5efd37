"""Batches concurrent requests to the queue.

A script for one member costs Redis and us nearly as much as one for fifty. So requests that arrive
while a batch is in flight form the next batch. If none is in flight, a request goes at once, with
all others of this iteration of the loop. An idle API adds no delay, and a busy one gets cheaper.
With two batches in flight, each was half as large and the p99 of creates a third worse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

#: Most items of one batch; the others wait for the next one.
MOST_TOGETHER = 400

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class Grouping(Generic[KeyT, ItemT, AnswerT]):
    """Batches items with equal keys; each key has one batch in flight at a time."""

    def __init__(self, send: Callable[[KeyT, list[ItemT]], Awaitable[Sequence[AnswerT]]]) -> None:
        """``send`` answers in the order of the items; every item gets the error that it raises."""
        self._send = send
        self._waiting: dict[KeyT, list[tuple[ItemT, asyncio.Future[AnswerT]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: KeyT, item: ItemT) -> AnswerT:
        """Send one item with the next batch and return its answer."""
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
