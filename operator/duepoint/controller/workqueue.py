"""Keys of changed objects, worked off by a few workers, in turns of their lanes.

``put`` notes the newest item of a key. A key is never worked on twice at once; what arrives while
it is being worked on is done right afterwards. Keys wait in lanes, mostly one for each namespace,
and lanes take turns: many keys of one namespace do not hold up those of another. A handler answers
with the seconds after which to work on its key again, ``AGAIN`` for a wait that grows from try to
try, or None; one that raises is tried again with such a wait, whether that is an expected trouble
or a bug, so that one object does not stop the others. Only what ends the term (a newer leader,
another layout) ends the workers. A newer item cuts each wait short. ``pause`` holds all workers
back, for trouble that concerns every key alike. A key that is not dirty costs nothing, so 100,000
objects that were seen and found in order leave nothing behind.
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

#: The answer of a handler: work on the key again, after a wait that grows from try to try.
AGAIN = -1.0
#: Does the work; answers with the seconds after which to try again, or None when it is done.
Handler = Callable[[ItemT], Awaitable[float | None]]


class WorkQueue(Generic[ItemT]):
    """Items by key, waiting or being worked on.

    Args:
        trouble: what the log says of a key whose handler has raised.
        lane: the lane of an item.
        ends: what ends ``run`` when a handler raises it; all else is repeated.
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
        #: Keys that can be worked on. The first lane has its turn.
        self._lanes: dict[str, collections.deque[str]] = {}
        self._ready = asyncio.Semaphore(0)
        self._retry_at: dict[str, float] = {}
        self._retries: list[tuple[float, str]] = []
        self._retry_news = asyncio.Event()
        self._paused_until = 0.0

    def __len__(self) -> int:
        """Keys that are not done."""
        return len(self._dirty) + len(self._busy - self._dirty.keys())

    def put(self, key: str, item: ItemT, *, after: float = 0.0) -> None:
        """Have the newest item of its key worked on, after so many seconds.

        A key that waits already keeps its turn; one that is worked on is done right afterwards.
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
        """The item of a key that waits to be worked on."""
        return self._dirty.get(key)

    def pause(self, seconds: float) -> None:
        """No worker takes a new key for so long; the longest pause counts."""
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
            except Exception as trouble:  # noqa: BLE001 - of one key
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
                if self._retry_at.get(key) == at:  # else a newer item was put meanwhile
                    del self._retry_at[key]
                    self._enqueue(key)
            wait = self._retries[0][0] - now if self._retries else None
            await clocks.wait_for(self._retry_news, wait, self._clock)

    def _enqueue(self, key: str) -> None:
        self._lanes.setdefault(self._lane(self._dirty[key]), collections.deque()).append(key)
        self._ready.release()

    def _next_key(self) -> str:
        """The first key of the lane whose turn it is; that lane is the last one then."""
        lane = next(iter(self._lanes))
        waiting = self._lanes.pop(lane)
        key = waiting.popleft()
        if waiting:
            self._lanes[lane] = waiting
        return key
