"""Dirty keys, worked off by a few workers: newest item wins, trouble is retried per key.

``put`` notes the newest item of a key. A key is never worked on twice at once; what arrives while
it is being worked on is done right afterwards. A handler that wants another try answers with the
seconds to wait; a newer item cuts that wait short. ``pause`` holds all workers back, for trouble
that concerns every key alike. A key that is not dirty costs nothing, so 100,000 objects that were
seen and found in order leave nothing behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")

#: Does the work; answers with the seconds after which to try again, or None when it is done.
Handler = Callable[[ItemT], Awaitable[float | None]]


class WorkQueue(Generic[ItemT]):
    """Items by key, waiting or being worked on."""

    def __init__(self) -> None:
        self._dirty: dict[str, ItemT] = {}
        self._busy: set[str] = set()
        self._ready: deque[str] = deque()
        self._waits: dict[str, asyncio.TimerHandle] = {}
        self._news = asyncio.Semaphore(0)
        self._open = asyncio.Event()
        self._open.set()
        self._resume: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Keys that are not done."""
        return len(self._dirty.keys() | self._busy)

    def put(self, key: str, item: ItemT) -> None:
        """The item is the newest of its key and is worked on as soon as a worker is free."""
        was_queued = key in self._dirty and key not in self._waits
        self._dirty[key] = item
        if (wait := self._waits.pop(key, None)) is not None:
            wait.cancel()
        if not was_queued and key not in self._busy:
            self._enqueue(key)

    def newest(self, key: str) -> ItemT | None:
        """The item of a key that waits to be worked on."""
        return self._dirty.get(key)

    def waiting(self) -> Iterable[ItemT]:
        """Everything that waits to be worked on."""
        return tuple(self._dirty.values())

    def pause(self, seconds: float) -> None:
        """No worker takes a new key for so long; the longest pause counts."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        if self._resume is not None and self._resume.when() >= end and not self._open.is_set():
            return
        if self._resume is not None:
            self._resume.cancel()
        self._open.clear()
        self._resume = loop.call_later(seconds, self._open.set)

    async def run(self, handler: Handler[ItemT], workers: int) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._work(handler))
        finally:
            self._close()

    async def _work(self, handler: Handler[ItemT]) -> None:
        while True:
            await self._news.acquire()
            await self._open.wait()
            key = self._ready.popleft()
            item = self._dirty.pop(key)
            self._busy.add(key)
            try:
                again = await handler(item)
            finally:
                self._busy.discard(key)
            self._after(key, item, again)

    def _after(self, key: str, item: ItemT, again: float | None) -> None:
        if key in self._dirty:
            self._enqueue(key)
        elif again is not None:
            self._dirty[key] = item
            loop = asyncio.get_running_loop()
            self._waits[key] = loop.call_later(again, self._wait_over, key)

    def _wait_over(self, key: str) -> None:
        del self._waits[key]
        self._enqueue(key)

    def _enqueue(self, key: str) -> None:
        self._ready.append(key)
        self._news.release()

    def _close(self) -> None:
        for wait in self._waits.values():
            wait.cancel()
        self._waits.clear()
        if self._resume is not None:
            self._resume.cancel()
