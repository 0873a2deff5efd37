"""Whose status is due and when, how often one is written, and how many at a time.

A queue has at most one entry per object, the soonest first. It holds names and not statuses, so a
status that waits is written in its newest state. Large objects have a queue of their own. The API
server reads, checks and stores a whole object for each write of its status and sends it to every
watch; for 250 KB that takes a hundred times as long as for a usual object. So one such write is
under way at a time. After it the API server has as much time for others as the write took, and the
namespace of the object waits for a multiple of that, which follows from the size. Namespaces take
turns: the one that waited longest is next.

``WriteInterval`` is the distance between two writes of one status, and ``Parallel`` bounds the
writes under way: there are fewer while the API server is slow. No I/O, no clock; instants are
monotonic seconds.
"""

from __future__ import annotations

import heapq
import itertools

import msgspec

from duepoint.controller.observed import LARGE_BYTES

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


#: A status follows the runs of its Schedule by no more than this when the cluster is calm.
STALENESS_SECONDS = 2.0
#: The same for a Schedule that never pauses, while its results stay the same.
STEADY_SECONDS = 10.0
#: A large object waits a second for each of these bytes, and no longer than this.
_BYTES_PER_SECOND = 4 * 1024
_MOST_DISTANCE_SECONDS = 60.0
#: A change so soon after a write was allowed had been waiting for it.
_WAITED_SECONDS = 0.5

#: An answer that took longer is slow. A calm API server takes 5 to 20 ms.
SLOW_SECONDS = 0.15


def least_distance(size: int) -> float:
    """Seconds between two writes about the runs of a large object of that many bytes."""
    return min(size / _BYTES_PER_SECOND, _MOST_DISTANCE_SECONDS)


class WriteInterval(msgspec.Struct, frozen=True, gc=False):
    """When one status was written last, and how long the next write waits after it.

    A status follows its runs by two seconds. For a Schedule that runs every second that would be a
    write every two seconds, each as expensive for the API server as a create, that says nothing
    new. So while a change waits whenever a write is allowed again, and the results stay the same,
    the distance doubles up to ten seconds. Another result, or a moment without changes, ends that.
    A large object costs the API server a hundred times as much, so its distance follows from its
    size. Frozen, so that all statuses that were never written share one.
    """

    written_at: float = float("-inf")
    distance: float = STALENESS_SECONDS

    def rest(self, now: float, *, least: float = 0.0) -> float:
        """Seconds until a change of runs may be written, at least so many after the last write."""
        return max(0.0, self.written_at + max(self.distance, least) - now)

    def written(self, now: float) -> WriteInterval:
        """The interval after a write."""
        waited = now <= self.written_at + self.distance + _WAITED_SECONDS
        distance = min(2 * self.distance, STEADY_SECONDS) if waited else STALENESS_SECONDS
        return WriteInterval(written_at=now, distance=distance)

    def hurried(self) -> WriteInterval:
        """The interval after a change of the result."""
        return WriteInterval(written_at=self.written_at, distance=STALENESS_SECONDS)


class FewPerPeriod:
    """So many writes in each period; instants are monotonic seconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._until = _LONG_AGO

    def is_over(self, now: float, left: float) -> bool:
        """Whether no other may begin in this period, which ends in so many seconds."""
        if now >= self._until:
            self._left, self._until = self._most, now + left
        return self._left <= 0

    def begin(self) -> None:
        """One begins in the period that was asked for."""
        self._left -= 1


class Parallel:
    """Bounds the writes under way: additive increase, multiplicative decrease, as in TCP.

    Parallel requests make a slow API server slower, for all of its clients. So a slow answer halves
    the bound, and each quick one adds a part of one. An answer to a request that began before the
    bound was halved says nothing new. The bound never falls below one.
    """

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

    def record_answer(self, began: float, now: float) -> None:
        """The API server has answered, or has not in time."""
        if now - began <= SLOW_SECONDS:
            self._limit = min(self._most, self._limit + 1 / self._limit)
        elif began >= self._halved_at:
            self._limit = max(1.0, self._limit / 2)
            self._halved_at = now
