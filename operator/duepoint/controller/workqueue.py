"""A work queue of changed objects, by key: deduplicated, fair between lanes, with retries.

``put`` stores the newest item of a key. No two workers handle one key at once; an item that arrives
meanwhile is handled right afterwards. Keys wait in lanes, usually one for each namespace, and lanes
take turns: many keys of one namespace do not delay those of another. A handler returns the seconds
after which to handle its key again, ``AGAIN`` to retry with backoff, or None. A handler that raises
is retried with backoff, whether the error was expected or a bug, so that one object does not stop
the others. Only an error that ends the term (a newer leader, another layout) stops the workers. A
newer item cuts any wait short. ``pause`` stops all workers for a while, for errors that concern
every key. The queue stores only keys that have work, so 100,000 objects in order cost nothing.
"""

from __future__ import annotations

import asyncio
import collections
import heapq
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from duepoint import clock as clocks
from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.kube import errors as kube_errors

ItemT = TypeVar("ItemT")

#: Returned by a handler: retry the key with backoff.
AGAIN = -1.0
#: Handles an item; returns the seconds after which to try again, or None when it is done.
Handler = Callable[[ItemT], Awaitable[float | None]]


class WorkQueue(Generic[ItemT]):
    """A queue of items by key; each is waiting or in flight.

    Args:
        trouble: the log message for a key whose handler has raised.
        lane: returns the lane of an item.
        ends: errors of a handler that end ``run``; all others are retried.
        most_seconds: the longest wait between two tries.
    """

    def __init__(
        self,
        clock: Clock,
        trouble: str,
        *,
        lane: Callable[[ItemT], str] = lambda _item: "",
        ends: tuple[type[Exception], ...] = (queue_errors.Fenced, queue_errors.LayoutChanged),
        most_seconds: float = 15.0,
    ) -> None:
        self._clock = clock
        self._trouble = trouble
        self._lane = lane
        self._ends = ends
        self._most_seconds = most_seconds
        self._waits: dict[str, Iterator[float]] = {}
        self._dirty: dict[str, ItemT] = {}
        self._busy: set[str] = set()
        #: Keys that are ready, by lane. The first lane is next.
        self._lanes: dict[str, collections.deque[str]] = {}
        self._ready = asyncio.Semaphore(0)
        self._retry_at: dict[str, float] = {}
        self._retries: list[tuple[float, str]] = []
        self._retry_news = asyncio.Event()
        self._paused_until = 0.0

    def __len__(self) -> int:
        """Return the number of keys that are waiting or in flight."""
        return len(self._dirty) + len(self._busy - self._dirty.keys())

    def put(self, key: str, item: ItemT, *, after: float = 0.0) -> None:
        """Queue the newest item of its key, ``after`` seconds from now.

        A queued key keeps its place; a key in flight is handled again right afterwards.
        """
        is_queued = key in self._dirty and key not in self._retry_at
        self._dirty[key] = item
        self._retry_at.pop(key, None)
        if is_queued or key in self._busy:
            return
        if after:
            self._wait(key, after)
        else:
            self._enqueue(key)

    def newest(self, key: str) -> ItemT | None:
        """Return the waiting item of a key, if any."""
        return self._dirty.get(key)

    def pause(self, seconds: float) -> None:
        """Let no worker take a new key for this long; the longest pause counts."""
        self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    async def run(self, handler: Handler[ItemT], workers: int) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retry_in_time())
            for _ in range(workers):
                group.create_task(self._work(handler))

    async def _work(self, handler: Handler[ItemT]) -> None:
        while True:
            await self._ready.acquire()
            key = self._next_key()
            while (seconds := self._paused_until - self._clock.monotonic()) > 0:
                await self._clock.sleep(seconds)
            self._busy.add(key)
            item = self._dirty.pop(key)
            again: float | None = AGAIN
            wanted = 0.0
            try:
                again = await handler(item)
            except self._ends:
                raise
            except Exception as trouble:  # noqa: BLE001 - one key must not stop the others
                self._log(key, trouble)
                wanted = getattr(trouble, "retry_after_seconds", None) or 0.0
            finally:
                self._busy.discard(key)
            if again == AGAIN:
                waits = services.backoff(first_seconds=0.5, most_seconds=self._most_seconds)
                again = max(next(self._waits.setdefault(key, waits)), wanted)
            else:
                self._waits.pop(key, None)
            self._after(key, item, again)

    def _log(self, key: str, trouble: Exception) -> None:
        if isinstance(trouble, errors.TryLater | errors.WorldChanged | kube_errors.ApiError):
            telemetry.logger.debug(self._trouble, error=str(trouble), uid=key)
        else:
            telemetry.logger.error(self._trouble, exc_info=trouble, uid=key)

    def _after(self, key: str, item: ItemT, again: float | None) -> None:
        if key in self._dirty:
            self._enqueue(key)
        elif again is not None:
            self._dirty[key] = item
            self._wait(key, again)

    def _wait(self, key: str, seconds: float) -> None:
        at = self._clock.monotonic() + seconds
        self._retry_at[key] = at
        heapq.heappush(self._retries, (at, key))
        if self._retries[0] == (at, key):
            self._retry_news.set()

    async def _retry_in_time(self) -> None:
        while True:
            self._retry_news.clear()
            now = self._clock.monotonic()
            while self._retries and self._retries[0][0] <= now:
                at, key = heapq.heappop(self._retries)
                if self._retry_at.get(key) == at:  # else a newer item has replaced this retry
                    del self._retry_at[key]
                    self._enqueue(key)
            wait = self._retries[0][0] - now if self._retries else None
            await clocks.wait_for(self._retry_news, wait, self._clock)

    def _enqueue(self, key: str) -> None:
        self._lanes.setdefault(self._lane(self._dirty[key]), collections.deque()).append(key)
        self._ready.release()

    def _next_key(self) -> str:
        """Take the first key of the next lane, and move that lane to the end."""
        lane = next(iter(self._lanes))
        waiting = self._lanes.pop(lane)
        key = waiting.popleft()
        if waiting:
            self._lanes[lane] = waiting
        return key
