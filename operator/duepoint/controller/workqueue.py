"""Dirty keys, worked off by a few workers: newest item wins, trouble is retried per key.

``put`` notes the newest item of a key. A key is never worked on twice at once; what arrives while
it is being worked on is done right afterwards. A handler that wants another try answers with the
seconds to wait; one that raises is tried again with backoff, whether that is an expected trouble or
a bug, so that one object does not stop the others; items of a batch that raised are tried again one
by one. Only what ends the term (a newer leader, another layout) ends the workers. A newer item cuts
each wait short. ``pause`` holds all workers back, for trouble that concerns every key alike. A key
that is not dirty costs nothing, so 100,000 objects that were seen and found in order leave nothing
behind.

Items that can be worked on together stand in a line of their own with a few workers of its own:
100,000 of them hold up no other, and no more work is begun than the event loop gets done while the
answers of what was begun before are on their way. While many come, a worker waits a moment for
those behind them: the more at once, the less each costs. One that comes alone is worked on at once.
"""

from __future__ import annotations

import asyncio
import collections
import heapq
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from duepoint import clock as clocks
from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.kube import errors as kube_errors

ItemT = TypeVar("ItemT")

#: So many waiting together are a crowd, of which more may be on their way.
_CROWD = 10
#: They are all there when none has come for so long; a watch brings many about every 0.1 s.
_LULL_SECONDS = 0.15
#: No crowd waits for longer.
_GATHERING_SECONDS = 1.0

#: Does the work of several keys at once, with an answer for each.
HandlerOfMany = Callable[[list[ItemT]], Awaitable[list[float | None]]]


@dataclass(frozen=True, slots=True)
class Batches(Generic[ItemT]):
    """How items that fit are worked on: at most so many at once, by so many workers."""

    handle: HandlerOfMany[ItemT]
    most: int
    workers: int


#: Does the work; answers with the seconds after which to try again, or None when it is done.
Handler = Callable[[ItemT], Awaitable[float | None]]


class WorkQueue(Generic[ItemT]):
    """Items by key, waiting or being worked on.

    Args:
        trouble: what the log says of a key whose handler has raised.
        fits: whether an item is worked on in batches, with others that fit.
        ends: what ends ``run`` when a handler raises it; all else is repeated.
    """

    def __init__(
        self,
        clock: Clock,
        trouble: str,
        fits: Callable[[ItemT], bool] = lambda _item: False,
        *,
        ends: tuple[type[Exception], ...] = (queue_errors.Fenced, queue_errors.LayoutChanged),
    ) -> None:
        self._clock = clock
        self._trouble = trouble
        self._fits = fits
        self._ends = ends
        self._waits: dict[str, Iterator[float]] = {}
        self._dirty: dict[str, ItemT] = {}
        self._busy: set[str] = set()
        self._alone: asyncio.Queue[str] = asyncio.Queue()
        # A queue of asyncio's costs more for each key than all else that is done with it here.
        self._in_company: collections.deque[str] = collections.deque()
        self._company = asyncio.Event()
        self._gathering = asyncio.Lock()
        self._retry_at: dict[str, float] = {}
        self._retries: list[tuple[float, str]] = []
        self._retry_news = asyncio.Event()
        self._paused_until = 0.0

    def __len__(self) -> int:
        """Keys that are not done."""
        return len(self._dirty) + len(self._busy - self._dirty.keys())

    def put(self, key: str, item: ItemT) -> None:
        """The item is the newest of its key and is worked on as soon as a worker is free."""
        is_queued = key in self._dirty and key not in self._retry_at
        self._dirty[key] = item
        self._retry_at.pop(key, None)
        if not is_queued and key not in self._busy:
            self._enqueue(key)

    def newest(self, key: str) -> ItemT | None:
        """The item of a key that waits to be worked on."""
        return self._dirty.get(key)

    def pause(self, seconds: float) -> None:
        """No worker takes a new key for so long; the longest pause counts."""
        self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    async def run(
        self, handler: Handler[ItemT], workers: int, batches: Batches[ItemT] | None = None
    ) -> None:
        """Work until cancelled; ``batches`` is for the items that fit."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retry_in_time())
            for _ in range(workers):
                group.create_task(self._work(handler))
            if batches is not None:
                for _ in range(batches.workers):
                    group.create_task(self._work_batches(batches))

    async def _work(self, handler: Handler[ItemT]) -> None:
        while True:
            key = await self._alone.get()
            await self._wait_out_pause()
            item = self._take(key)
            try:
                again = await handler(item)
            except Exception as trouble:  # noqa: BLE001 - of one key
                again = self._wait_after(key, trouble)
            else:
                self._waits.pop(key, None)
            finally:
                self._busy.discard(key)
            self._after(key, item, again)

    def _wait_after(self, key: str, trouble: Exception) -> float:
        """Seconds until the next try of a key whose handler has raised."""
        self._log(trouble, uid=key)
        return self._next_wait(key, trouble)

    def _log(self, trouble: Exception, **whose: object) -> None:
        """Log what a handler has raised; raise it again where it ends the work."""
        if isinstance(trouble, self._ends):
            raise trouble
        if isinstance(trouble, errors.TryLater | errors.WorldChanged | kube_errors.ApiError):
            telemetry.logger.debug(self._trouble, error=str(trouble), **whose)
        else:
            telemetry.logger.error(self._trouble, exc_info=trouble, **whose)

    def _next_wait(self, key: str, trouble: Exception) -> float:
        waits = services.backoff(first_seconds=0.5, most_seconds=15.0)
        wanted = getattr(trouble, "retry_after_seconds", None) or 0.0
        return max(next(self._waits.setdefault(key, waits)), wanted)

    async def _work_batches(self, batches: Batches[ItemT]) -> None:
        while True:
            async with self._gathering:  # those who wait beside each other would share a crowd
                while not self._in_company:
                    self._company.clear()
                    await self._company.wait()
                await self._wait_out_pause()
                await self._gather(batches.most)
                taken = self._take_fitting(batches.most)
            if not taken:
                continue
            answers: list[float | None]
            try:
                answers = await batches.handle(list(taken.values()))
            except Exception as trouble:  # noqa: BLE001 - of one of them, shown when it is alone
                self._log(trouble, together=len(taken))
                answers = [self._next_wait(key, trouble) for key in taken]
            finally:
                self._busy.difference_update(taken)
            for (key, item), again in zip(taken.items(), answers, strict=True):
                self._after(key, item, again)

    async def _gather(self, most: int) -> None:
        """While many keep coming, until they are enough."""
        latest = self._clock.monotonic() + _GATHERING_SECONDS
        while _CROWD <= (waiting := len(self._in_company)) < most:
            left = latest - self._clock.monotonic()
            if left <= 0:
                return
            await self._clock.sleep(min(_LULL_SECONDS, left))
            if len(self._in_company) == waiting:
                return

    async def _wait_out_pause(self) -> None:
        while (seconds := self._paused_until - self._clock.monotonic()) > 0:
            await self._clock.sleep(seconds)

    def _take(self, key: str) -> ItemT:
        self._busy.add(key)
        return self._dirty.pop(key)

    def _take_fitting(self, most: int) -> dict[str, ItemT]:
        """The first in the line; what does not fit any more goes to the other line."""
        taken: dict[str, ItemT] = {}
        line, dirty, fits = self._in_company, self._dirty, self._fits
        while line and len(taken) < most:
            key = line.popleft()
            if fits(dirty[key]):
                taken[key] = dirty.pop(key)
            else:
                self._alone.put_nowait(key)
        self._busy.update(taken)
        return taken

    def _after(self, key: str, item: ItemT, again: float | None) -> None:
        if key in self._dirty:
            self._enqueue(key)
        elif again is not None:
            at = self._clock.monotonic() + again
            self._dirty[key] = item
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
        # What has failed is tried alone until it succeeds: one object must not fail the others.
        if key not in self._waits and self._fits(self._dirty[key]):
            self._in_company.append(key)
            self._company.set()
        else:
            self._alone.put_nowait(key)
