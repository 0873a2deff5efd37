"""A cache for answers of a slow server, fresh for seconds, with one request at a time per key."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

#: The cache keeps this many times fewer negative answers than positive ones.
_REFUSED_PART = 10

KeyT = TypeVar("KeyT", bound=Hashable)
FoundT = TypeVar("FoundT")


class Remembered(Generic[KeyT, FoundT]):
    """Caches answers and evicts the oldest first.

    Args:
        most: largest number of cached yes answers (true ones). A tenth as many no answers are
            cached, in a part of their own: requests for made-up things evict no yes.
        yes: how many seconds a yes is fresh.
        no: how many seconds a no is fresh; None = as long.
    """

    def __init__(self, most: int, *, yes: float, no: float | None = None) -> None:
        self._most = most
        self._seconds = yes, yes if no is None else no
        #: Each answer, and until when it is fresh, on the loop's clock.
        self._yes: collections.OrderedDict[KeyT, tuple[FoundT, float]] = collections.OrderedDict()
        self._no: collections.OrderedDict[KeyT, tuple[FoundT, float]] = collections.OrderedDict()
        self._asked: dict[KeyT, asyncio.Task[FoundT]] = {}

    def former(self, key: KeyT) -> FoundT | None:
        """Return the newest yes, however old."""
        known = self._yes.get(key)
        return None if known is None else known[0]

    async def find(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        """Return the answer from the cache or from ``ask``, whose errors are not cached."""
        loop = asyncio.get_running_loop()
        answer = self._yes.get(key) or self._no.get(key)
        if answer is not None and loop.time() < answer[1]:
            return answer[0]
        if (task := self._asked.get(key)) is None:
            task = self._asked[key] = loop.create_task(self._fetch(key, ask))
            task.add_done_callback(lambda task: self._forget(key, task))
        return await asyncio.shield(task)

    def _forget(self, key: KeyT, task: asyncio.Task[FoundT]) -> None:
        del self._asked[key]
        _ = task.cancelled() or task.exception()  # else asyncio would log it, if nobody waits

    async def _fetch(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        found = await ask()
        now, (yes, no) = asyncio.get_running_loop().time(), self._seconds
        if found:
            kept, other, most, seconds = self._yes, self._no, self._most, yes
        else:
            kept, other, seconds = self._no, self._yes, no
            most = max(1, self._most // _REFUSED_PART)
        other.pop(key, None)
        kept[key] = found, now + seconds
        kept.move_to_end(key)
        if len(kept) > most:
            kept.popitem(last=False)
        return found
