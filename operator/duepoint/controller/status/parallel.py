"""How many statuses are written at a time: fewer while the API server is slow.

A server that takes long has too much to do, and what is asked of it at the same time only makes
everything slower, for others as well. So a slow answer halves the number, and each quick one adds
a part of one (additive increase, multiplicative decrease, as TCP). Answers to what was asked
before the number was halved say nothing new. One is always written. Pure but for being mutable;
instants are monotonic seconds.
"""

from __future__ import annotations

#: An answer that took longer is slow. Calm, one takes 5 to 20 ms.
SLOW_SECONDS = 0.15


class Parallel:
    """Bounds the writes under way."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._halved_at = float("-inf")
        self._under_way = 0

    def has_room(self) -> bool:
        """Whether one more may begin."""
        return self._under_way < int(self._limit)

    def begin(self) -> None:
        """One more is under way; ``end`` has to follow."""
        self._under_way += 1

    def end(self) -> None:
        """One less is under way."""
        self._under_way -= 1

    def note_answer(self, began: float, now: float) -> None:
        """The API server has answered, or has not in time."""
        if now - began <= SLOW_SECONDS:
            self._limit = min(self._most, self._limit + 1 / self._limit)
        elif began >= self._halved_at:
            self._limit = max(1.0, self._limit / 2)
            self._halved_at = now
