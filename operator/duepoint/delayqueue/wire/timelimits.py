"""How long an answer is waited for, by a process that may itself be late.

A timer of the event loop that is overdue is carried out in the same turn in which the loop learns
of the bytes that have come, and before they are read. So in a process that was stopped, or
that has more to do than its share of the CPU allows, a plain timeout gives up answers that are
there already: it takes a good server for one that is away, closes the connection, and makes more
work of it. A worker that believed this let leases run out and asked receivers twice.

Here a limit that is met late is put off, by as much as some more turns of such a loop take.
"""

from __future__ import annotations

import asyncio
import types

#: A timer that comes later than this was kept waiting by other work.
_LATE_SECONDS = 0.02
#: What is left to be done once an answer is there takes a few turns of the loop: the bytes are
#: read, the reader wakes up, a further reply may be read.
_TURNS = 4
_LEAST_SECONDS = 0.05


class AnswerWithin:
    """As ``asyncio.timeout``, and up to twice as long where this process itself is late."""

    __slots__ = ("_last", "_limit", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        began = asyncio.get_running_loop().time()
        self._last = began + 2 * self._seconds
        self._set(began + self._seconds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, error, traceback)

    def _set(self, instant: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(instant, self._end, instant)

    def _end(self, expected: float) -> None:
        now = asyncio.get_running_loop().time()
        late = now - expected
        if late <= _LATE_SECONDS or now >= self._last:
            self._limit.reschedule(now)
        else:
            self._set(min(now + max(_LEAST_SECONDS, _TURNS * late), self._last))
