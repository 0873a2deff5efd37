"""Whose status is due, and when: at most one entry per object, the soonest first.

The queue holds names and not statuses, so a status that waits is written in its newest state. Large
objects have a queue of their own. The API server reads, checks and stores a whole object for each
write of its status and sends it to every watch; for 250 KB that takes a hundred times as long as
for a usual object. So one such write is under way at a time. After it the API server has as much
time for others as the write took, and the namespace of the object waits for a multiple of that,
which follows from the size. Namespaces take turns: the one that waited longest is next.

Mutable, no I/O, no clock; instants are monotonic seconds.
"""

from __future__ import annotations

import heapq
import itertools

from duepoint.controller.schedules.largeobjects import LARGE_BYTES

#: A namespace rests as long as its write took for each of these bytes, and no longer than this.
_REST_BYTES = LARGE_BYTES
_MOST_REST_SECONDS = 5.0
_LONG_AGO = float("-inf")


class WriteQueue:
    """Names with the instant at which each is due."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._due)

    def bring_forward(self, name: str, due: float) -> bool:
        """The name is due then, or sooner if it was; True where it is the soonest of all now."""
        if self._due.get(name, due + 1) <= due:
            return False
        self.put_off(name, due)
        return self._heap[0][2] == name

    def put_off(self, name: str, due: float) -> None:
        """The name is due then and not before."""
        self._due[name] = due
        heapq.heappush(self._heap, (due, next(self._order), name))

    def drop(self, name: str) -> float | None:
        """The name is not due any more; when it was."""
        return self._due.pop(name, None)

    def next_due(self) -> float | None:
        """When the soonest is due."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def first(self) -> str | None:
        """The soonest name; it stays in the queue."""
        return None if self.next_due() is None else self._heap[0][2]

    def take(self, now: float) -> str | None:
        """The soonest name that is due, taken from the queue; None where none is due."""
        due = self.next_due()
        if due is None or due > now:
            return None
        _, _, name = heapq.heappop(self._heap)
        del self._due[name]
        return name


class LargeWriteQueue:
    """Names of large objects: a queue for each namespace, and whose turn it is."""

    def __init__(self) -> None:
        self._queues: dict[str, WriteQueue] = {}
        #: When a namespace may have its next write.
        self._rested: dict[str, float] = {}
        self._all_rested = _LONG_AGO

    def bring_forward(self, namespace: str, name: str, due: float) -> None:
        """The name is due then, or sooner if it was."""
        self._queues.setdefault(namespace, WriteQueue()).bring_forward(name, due)

    def put_off(self, namespace: str, name: str, due: float) -> None:
        """The name is due then and not before."""
        self._queues.setdefault(namespace, WriteQueue()).put_off(name, due)

    def drop(self, namespace: str, name: str) -> float | None:
        """The name is not due any more; when it was."""
        queue = self._queues.get(namespace)
        return None if queue is None else queue.drop(name)

    def next_due(self) -> float | None:
        """When the next write may begin; None where no name is due at any time."""
        turns = self._turns()
        return max(min(turns.values()), self._all_rested) if turns else None

    def take(self, now: float) -> str | None:
        """The name to write now, taken from the queue; None where none is. ``rest`` follows."""
        if now < self._all_rested:
            return None
        ready = [namespace for namespace, turn in self._turns().items() if turn <= now]
        if not ready:
            return None
        longest_ago = min(ready, key=lambda namespace: self._rested.get(namespace, _LONG_AGO))
        return self._queues[longest_ago].take(now)

    def rest(self, namespace: str, size: int, began: float, now: float) -> None:
        """A write of an object of that many bytes has ended."""
        took = now - began
        self._all_rested = now + took
        self._rested = {one: until for one, until in self._rested.items() if until > now}
        rest = min(took * size / _REST_BYTES, _MOST_REST_SECONDS)
        self._rested[namespace] = now + max(took, rest)

    def _turns(self) -> dict[str, float]:
        """From when each namespace may have a write."""
        turns = {}
        for namespace, queue in list(self._queues.items()):
            due = queue.next_due()
            if due is None:
                del self._queues[namespace]
            else:
                turns[namespace] = max(due, self._rested.get(namespace, _LONG_AGO))
        return turns
