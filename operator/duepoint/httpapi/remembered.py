"""A cache for answers of a slow server, fresh for seconds, with one request at a time per key."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from duepoint.httpapi.problems import OperationProblem

#: The cache keeps this many times fewer negative answers than positive ones.
_REFUSED_PART = 10
#: How long a request waits for the renewal of a stale yes, and how long the stale yes then counts
#: as fresh: the server is away, and need not be asked for each request.
_PATIENCE_SECONDS = 1.0

KeyT = TypeVar("KeyT", bound=Hashable)
FoundT = TypeVar("FoundT")


@dataclass(slots=True)
class _Answer(Generic[FoundT]):
    """An answer; until when it is fresh, and until when it is usable, on the loop's clock."""

    found: FoundT
    fresh_until: float
    stands_until: float


class Remembered(Generic[KeyT, FoundT]):
    """Caches answers and evicts the oldest first.

    Args:
        most: largest number of cached yes answers (true ones). A tenth as many no answers are
            cached, in a part of their own: requests for made-up things evict no yes.
        yes: seconds for which a yes is fresh.
        no: seconds for which a no is fresh.
        stands: seconds for which a yes stays usable while its renewal fails or is slow. A no
            replaces it at once.
    """

    def __init__(self, most: int, *, yes: float, no: float, stands: float = 0.0) -> None:
        self._most = most
        self._seconds = yes, no, max(yes, stands)
        self._yes: collections.OrderedDict[KeyT, _Answer[FoundT]] = collections.OrderedDict()
        self._no: collections.OrderedDict[KeyT, _Answer[FoundT]] = collections.OrderedDict()
        self._asked: dict[KeyT, asyncio.Task[FoundT]] = {}

    def former(self, key: KeyT) -> FoundT | None:
        """Return the newest yes, however old."""
        known = self._yes.get(key)
        return None if known is None else known.found

    async def find(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        """Return the answer from the cache or from ``ask``, whose errors are not cached."""
        loop = asyncio.get_running_loop()
        answer, now = self._yes.get(key) or self._no.get(key), loop.time()
        if answer is not None and now < answer.fresh_until:
            return answer.found
        if (task := self._asked.get(key)) is None:
            task = self._asked[key] = loop.create_task(self._fetch(key, ask))
            task.add_done_callback(lambda task: self._forget(key, task))
        if answer is None or now >= answer.stands_until:
            return await asyncio.shield(task)
        await asyncio.wait({task}, timeout=_PATIENCE_SECONDS)
        if (
            task.done()
            and not task.cancelled()
            and not isinstance(task.exception(), OperationProblem)
        ):
            return task.result()
        answer.fresh_until = min(loop.time() + _PATIENCE_SECONDS, answer.stands_until)
        return answer.found

    def _forget(self, key: KeyT, task: asyncio.Task[FoundT]) -> None:
        del self._asked[key]
        _ = task.cancelled() or task.exception()  # else asyncio would log it, if nobody waits

    async def _fetch(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        found = await ask()
        now, (yes, no, stands) = asyncio.get_running_loop().time(), self._seconds
        if found:
            kept, other, most = self._yes, self._no, self._most
            answer = _Answer(found, now + yes, now + stands)
        else:
            kept, other, most = self._no, self._yes, max(1, self._most // _REFUSED_PART)
            answer = _Answer(found, now + no, now + no)
        other.pop(key, None)
        kept[key] = answer
        kept.move_to_end(key)
        if len(kept) > most:
            kept.popitem(last=False)
        return found
