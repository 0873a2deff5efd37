"""Large Schedules, of which few are in hand at a time, however many there are.

A spec in objects takes a dozen times its text, so large ones are worked on a few at a time, and a
namespace has no more than its share of those (``duepoint.shares``). A place rests as long as the
work took, and as long as corresponds to ``_BYTES_A_SECOND``: most of the work is the API server's,
which reads the object and tries its Job, and collects afterwards what that left. What waits is
text; when it is more than ``_MOST_WAITING_BYTES`` in all, a further large object waits by its name
alone and is read again when it is its turn. Small objects pass all of them. Instants are monotonic
seconds.
"""

from __future__ import annotations

import heapq

from duepoint import shares
from duepoint.controller.observed import LARGE_BYTES

#: Large objects that are worked on at a time.
_AT_A_TIME = 4
_MOST_REST_SECONDS = 5.0
#: Of one place. Objects of 1 MiB, three at a time: the API server decodes 0.8 MiB a second of them.
_BYTES_A_SECOND = 256 * 1024
#: Of the texts of large objects that wait.
_MOST_WAITING_BYTES = 8 * 1024 * 1024
#: Who finds no place looks again after this, when no place rests.
_LOOK_SECONDS = 0.05
#: Between two looks of a namespace, so that looks cost the same however many of its objects wait.
_LOOKS_APART_SECONDS = 0.02


class LargeObjects:
    """Of one term."""

    def __init__(self) -> None:
        self._places: shares.Shares[str] = shares.Shares(_AT_A_TIME)
        #: Until when, and of which namespace.
        self._resting: list[tuple[float, str]] = []
        self._sizes: dict[str, int] = {}
        self._waiting_bytes = 0
        #: Of each namespace, when the last of those that wait looks again.
        self._last_looks: dict[str, float] = {}

    def may_wait(self, uid: str, size: int) -> bool:
        """Whether the text may be kept until it is its turn; then it counts until ``forget``."""
        if size < LARGE_BYTES:
            self.forget(uid)
            return True
        if self._waiting_bytes - self._sizes.get(uid, 0) + size > _MOST_WAITING_BYTES:
            self.forget(uid)
            return False
        self.forget(uid)
        self._sizes[uid] = size
        self._waiting_bytes += size
        return True

    def forget(self, uid: str) -> None:
        """Its text is not kept any more."""
        self._waiting_bytes -= self._sizes.pop(uid, 0)

    def begin(self, namespace: str, now: float) -> float:
        """0.0 = it is its turn, ``end`` has to follow; else seconds to look again after."""
        while self._resting and self._resting[0][0] <= now:
            self._places.give_back(heapq.heappop(self._resting)[1])
        if self._places.has_room(namespace):
            self._places.take(namespace)
            return 0.0
        return self._next_look(namespace, now) - now

    def end(self, namespace: str, size: int, began: float, now: float) -> None:
        """It has been worked on since then; its place rests as long, or as its size wants."""
        rest_seconds = min(max(now - began, size / _BYTES_A_SECOND), _MOST_REST_SECONDS)
        heapq.heappush(self._resting, (now + rest_seconds, namespace))
        self._last_looks = {name: at for name, at in self._last_looks.items() if at > now}

    def _next_look(self, namespace: str, now: float) -> float:
        """When a look makes sense: a place comes free no sooner, and the others look before."""
        comes_free = self._resting[0][0] if self._resting else now + _LOOK_SECONDS
        last = self._last_looks.get(namespace, now)
        self._last_looks[namespace] = max(comes_free, last + _LOOKS_APART_SECONDS)
        return self._last_looks[namespace]
