"""How old a message of the server is when we get to read it.

A wake-up says "due in so many seconds, seen from now", but it is read when the loop gets to it,
milliseconds later while it is busy firing. Wall clocks of two machines cannot tell how much later;
the quickest message of the last minute can: what another one took more than that is its age. A
message is never thought older than it is by more than the quickest one's own way, so a sleeper is
woken on time or a trifle early, and then told to wait.
"""

from __future__ import annotations

from duepoint import clock as clocks

#: How long the quickest message is believed; clocks drift by milliseconds in that time.
WINDOW_SECONDS = 30.0


class ServerClock:
    """Compares the server's times with our monotonic clock."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._before = self._quickest = float("inf")

    def age_seconds(self, server_us: int) -> float:
        """How long ago the server was at this instant of its own clock; >= 0."""
        now = self._clock.monotonic()
        if now - self._began > WINDOW_SECONDS:
            self._began, self._before, self._quickest = now, self._quickest, float("inf")
        distance = now - server_us / 1_000_000
        self._quickest = min(self._quickest, distance)
        return distance - min(self._before, self._quickest)
