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
#: The most stale heap entries, of keys that became due sooner.
_FORMER_WAITS = 1_000
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
        self._backoffs: dict[str, Iterator[float]] = {}
        self._items: dict[str, ItemT] = {}
        self._busy: set[str] = set()
        #: When a waiting key, or one to be handled again after its flight, is due.
        self._due: dict[str, float] = {}
        self._waits: list[tuple[float, str]] = []
        self._wait_news = asyncio.Event()
        #: Keys that are ready, by lane. The first lane is next.
        self._lanes: dict[str, dict[str, None]] = {}
        self._lane_of: dict[str, str] = {}
        self._ready = asyncio.Semaphore(0)
        self._paused_until = 0.0

    def put(self, key: str, item: ItemT, *, after: float = 0.0) -> None:
        """Queue the newest item of its key, due in ``after`` seconds at the latest.

        A key that is ready keeps its place; a key in flight is handled again after that.
        """
        self._items[key] = item
        if key in self._lane_of:
            if self._lane(item) != self._lane_of[key]:
                self._leave_lane(key)
                self._join_lane(key)
            return
        due = self._clock.monotonic() + after
        if due < self._due.get(key, due + 1):
            self._due[key] = due
            if key not in self._busy:
                self._wait(key)

    def newest(self, key: str) -> ItemT | None:
        """Return the waiting item of a key, if any."""
        return self._items.get(key)

    def pause(self, seconds: float) -> None:
        """Let no worker take a new key for this long; the longest pause counts."""
        self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    async def run(self, handler: Handler[ItemT], workers: int) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_waits())
            for _ in range(workers):
                group.create_task(self._work(handler))

    async def _work(self, handler: Handler[ItemT]) -> None:
        while True:
            await self._ready.acquire()
            while (seconds := self._paused_until - self._clock.monotonic()) > 0:
                await self._clock.sleep(seconds)
            key = next(iter(self._lanes[next(iter(self._lanes))]))
            self._leave_lane(key)
            self._busy.add(key)
            item = self._items.pop(key)
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
                again = max(next(self._backoffs.setdefault(key, waits)), wanted)
            else:
                self._backoffs.pop(key, None)
            if key in self._items:
                self._wait(key)
            elif again is not None:
                self.put(key, item, after=again)

    def _log(self, key: str, trouble: Exception) -> None:
        if isinstance(trouble, errors.TryLater | errors.WorldChanged | kube_errors.ApiError):
            telemetry.logger.debug(self._trouble, error=str(trouble), uid=key)
        else:
            telemetry.logger.error(self._trouble, exc_info=trouble, uid=key)

    def _wait(self, key: str) -> None:
        """Let the key wait until it is due."""
        due = self._due[key]
        if due <= self._clock.monotonic():
            self._end_wait(key)
            return
        heapq.heappush(self._waits, (due, key))
        if len(self._waits) > 2 * len(self._due) + _FORMER_WAITS:
            self._waits = sorted((due, key) for key, due in self._due.items())
        if self._waits[0] == (due, key):
            self._wait_news.set()

    async def _end_waits(self) -> None:
        while True:
            self._wait_news.clear()
            now = self._clock.monotonic()
            while self._waits and self._waits[0][0] <= now:
                due, key = heapq.heappop(self._waits)
                if self._due.get(key) == due and key not in self._busy:  # else it was due sooner
                    self._end_wait(key)
            wait = self._waits[0][0] - now if self._waits else None
            await clocks.wait_for(self._wait_news, wait, self._clock)

    def _end_wait(self, key: str) -> None:
        del self._due[key]
        self._join_lane(key)
        self._ready.release()

    def _join_lane(self, key: str) -> None:
        lane = self._lane_of[key] = self._lane(self._items[key])
        self._lanes.setdefault(lane, {})[key] = None

    def _leave_lane(self, key: str) -> None:
        """Take the key out of its lane, and move that lane to the end."""
        lane = self._lane_of.pop(key)
        waiting = self._lanes.pop(lane)
        del waiting[key]
        if waiting:
            self._lanes[lane] = waiting
