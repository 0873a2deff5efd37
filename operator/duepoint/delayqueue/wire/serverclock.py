"""How old a message of the server is when we get to read it.

A wake-up says "due in so many seconds, seen from now", but it is read when the loop gets to it,
milliseconds later while it is busy firing. Wall clocks of two machines cannot tell how much later,
so the server's clock is compared with our monotonic one as time protocols do it (RFC 5905, clock
filter): of all answers of the last minute the one with the shortest way there and back shows best
how far the clocks are apart, to half of that way; and no message can be younger than it seems.
Answers are told by ``note_answer``, messages are judged by ``age_seconds``. A sleeper is so woken
on time, or a trifle early and then told to wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import clock as clocks

#: How long the shortest way is believed; clocks drift by milliseconds in that time.
WINDOW_SECONDS = 30.0
_NEVER = float("inf")


@dataclass(slots=True)
class _Seen:
    """What one window has shown.

    Attributes:
        way: shortest way there and back of an answer.
        by_answer: distance of the clocks by that answer.
        by_message: least distance by any message; the true one is not more.
    """

    way: float = _NEVER
    by_answer: float = _NEVER
    by_message: float = _NEVER


class ServerClock:
    """Compares the server's times with our monotonic clock."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._before = self._seen = _Seen()

    def note_answer(self, server_us: int, *, asked: float) -> None:
        """An answer made at this instant of the server, to a question of monotonic ``asked``."""
        self._turn_over()
        now = self._clock.monotonic()
        if now - asked < self._seen.way:
            self._seen.way = now - asked
            self._seen.by_answer = (now + asked) / 2 - server_us / 1_000_000

    def age_seconds(self, server_us: int) -> float:
        """How long ago the server was at this instant of its own clock; >= 0."""
        self._turn_over()
        distance = self._clock.monotonic() - server_us / 1_000_000
        self._seen.by_message = min(self._seen.by_message, distance)
        best = min(self._before, self._seen, key=lambda seen: seen.way)
        least = min(self._before.by_message, self._seen.by_message, best.by_answer)
        return distance - least

    def _turn_over(self) -> None:
        now = self._clock.monotonic()
        if now - self._began > WINDOW_SECONDS:
            self._began, self._before, self._seen = now, self._seen, _Seen()
