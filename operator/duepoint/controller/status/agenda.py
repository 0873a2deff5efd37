"""When each status is to be written: at most one entry per object, soonest first, at a rate.

Calm, a status is written the moment it is due. When more are due than the rate allows, they wait
in order of their due, and whoever is written last is written in its newest state: the agenda holds
names, not statuses. Pure but for being mutable; instants are monotonic seconds.
"""

from __future__ import annotations

import heapq
import itertools

_LEAST_WAIT_SECONDS = 0.001


class Agenda:
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
        self._due[name] = due
        heapq.heappush(self._heap, (due, next(self._order), name))
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
        """The soonest name; it stays on the agenda."""
        return None if self.next_due() is None else self._heap[0][2]

    def take(self, now: float) -> str | None:
        """The soonest name that is due, taken off the agenda; None where none is."""
        due = self.next_due()
        if due is None or due > now:
            return None
        _, _, name = heapq.heappop(self._heap)
        del self._due[name]
        return name


class Allowance:
    """A rate with a second's worth of burst: none in a burst of news, higher when news gets old.

    A burst of news mostly comes with a burst of creations, of Schedules or of Jobs, and a status
    costs the API server as much as several of those. So while there is more news than a few
    seconds' worth and more and more comes, nothing is written, for as long as nothing has waited
    for longer than the patience; from then on the rate grows with every second that the oldest
    waits, so that ten thousand names are written within a minute where the API server can.
    """

    PATIENCE_SECONDS = 20.0
    #: More than this much of the rate, in seconds, is a burst.
    _BURST_SECONDS = 4
    #: It is looked this often whether a burst is over.
    _LOOK_SECONDS = 0.5

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = now

    def is_burst(self, waiting: int) -> bool:
        """Whether so many with news are more than a few seconds' worth."""
        return waiting > self._BURST_SECONDS * self._per_second

    def take(
        self,
        now: float,
        *,
        waiting: int = 0,
        waited_seconds: float = 0.0,
        is_rising: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> float:
        """0.0 and one less left, or the seconds until it is worth asking again.

        Args:
            now: monotonic.
            waiting: how many have news.
            waited_seconds: how long the one that would be taken has had news.
            is_rising: more and more have.
            patience_seconds: how long a burst may hold them up.
        """
        over_seconds = waited_seconds - patience_seconds
        if is_rising and self.is_burst(waiting) and over_seconds <= 0:
            return self._LOOK_SECONDS
        rate = self._per_second * (1 + max(0.0, over_seconds))
        self._left = min(rate, self._left + (now - self._at) * rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        # Less than a clock's step would be no wait at all, and whoever waits would spin.
        return max((1 - self._left) / rate, _LEAST_WAIT_SECONDS)
