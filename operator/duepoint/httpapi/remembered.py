"""A cache for answers of a slow server, fresh for seconds, with one request at a time per key."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from duepoint.httpapi.problems import OperationProblem

#: The cache keeps this many times fewer negative answers than positive ones.
_REFUSED_PART = 10
#: How long a request waits for the renewal of a stale yes, and the time between attempts while the
#: server is away.
_PATIENCE_SECONDS = 1.0

KeyT = TypeVar("KeyT", bound=Hashable)
FoundT = TypeVar("FoundT")


class _Answer(Generic[FoundT]):
    """An answer, with when to renew it, until when it is fresh, and until when it is usable.

    The three are instants on the loop's clock.
    """

    __slots__ = ("found", "holds_until", "renewed_from", "stands_until")

    def __init__(
        self, found: FoundT, renewed_from: float, holds_until: float, stands_until: float
    ) -> None:
        self.found = found
        self.renewed_from = renewed_from
        self.holds_until = holds_until
        self.stands_until = stands_until


class Remembered(Generic[KeyT, FoundT]):
    """Caches answers and evicts the oldest first.

    Args:
        most: largest number of cached yes answers (true ones). A tenth as many no answers are
            cached, in a part of their own: requests for made-up things evict no yes.
        yes: seconds for which a yes is fresh.
        no: seconds for which a no is fresh.
        stands: seconds for which a yes stays usable while its renewal fails or is slow. If set, a
            yes is renewed in the background from half of ``yes`` on. A no replaces it at once.
    """

    def __init__(self, most: int, *, yes: float, no: float, stands: float = 0.0) -> None:
        self._most = most
        self._seconds = yes, no, max(yes, stands)
        self._renewed = yes / 2 if stands else yes
        self._yes: collections.OrderedDict[KeyT, _Answer[FoundT]] = collections.OrderedDict()
        self._no: collections.OrderedDict[KeyT, _Answer[FoundT]] = collections.OrderedDict()
        #: Requests in flight, and since when.
        self._asked: dict[KeyT, tuple[asyncio.Task[FoundT], float]] = {}

    def former(self, key: KeyT) -> FoundT | None:
        """Return the newest yes, however old."""
        known = self._yes.get(key)
        return None if known is None else known.found

    async def find(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        """Return the answer from the cache or from ``ask``, whose errors are not cached."""
        now = asyncio.get_running_loop().time()
        answer = self._yes.get(key) or self._no.get(key)
        if answer is not None and now < answer.renewed_from:
            return answer.found
        task, began = self._asked.get(key) or self._begin(key, ask, now)
        if answer is None or now >= answer.stands_until:
            return await asyncio.shield(task)
        if now < answer.holds_until:
            return answer.found
        await asyncio.wait({task}, timeout=max(0.0, began + _PATIENCE_SECONDS - now))
        if not task.done() or task.cancelled() or isinstance(task.exception(), OperationProblem):
            return answer.found
        return task.result()

    def _begin(
        self, key: KeyT, ask: Callable[[], Awaitable[FoundT]], now: float
    ) -> tuple[asyncio.Task[FoundT], float]:
        task = asyncio.get_running_loop().create_task(self._ask(key, ask))
        question = self._asked[key] = task, now

        def ended(task: asyncio.Task[FoundT]) -> None:
            del self._asked[key]
            _ = task.cancelled() or task.exception()  # else asyncio would log it, if nobody waits

        task.add_done_callback(ended)
        return question

    async def _ask(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        loop = asyncio.get_running_loop()
        try:
            found = await ask()
        except OperationProblem:
            if (known := self._yes.get(key)) is not None:
                known.renewed_from = min(loop.time() + _PATIENCE_SECONDS, known.stands_until)
            raise
        now, (yes, no, stands) = loop.time(), self._seconds
        if found:
            kept, other, most = self._yes, self._no, self._most
            answer = _Answer(found, now + self._renewed, now + yes, now + stands)
        else:
            kept, other, most = self._no, self._yes, max(1, self._most // _REFUSED_PART)
            answer = _Answer(found, now + no, now + no, now + no)
        other.pop(key, None)
        kept[key] = answer
        kept.move_to_end(key)
        if len(kept) > most:
            kept.popitem(last=False)
        return found
