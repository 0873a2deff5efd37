"""How fast turns come free where some wait for them, and when who was put off is to come back.

Whoever waits in memory holds something that others could use, so a turn is waited for only where
one is to be had soon. Who is put off comes back one after the other, no faster than turns come
free, and further apart the longer none has: none of them would get one, and each that comes back
and is put off again is work in which everybody else's slots wait. Pure; instants are monotonic
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A turn is waited for in memory for about so long.
PATIENCE_SECONDS = 0.25
#: Bounds of what a delivery is put off by.
LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0
#: So far from one another do those come back that were put off.
_SPACING_SECONDS = 0.01
#: The longer no turn has come free, the further apart.
_SPACING_OF_STILLNESS = 0.1
#: Weight of the newest interval between two turns that ended.
_WEIGHT = 0.1


@dataclass(slots=True)
class Pace:
    """Of the turns of one receiver, or of one namespace.

    Attributes:
        moved_at: when a turn came free last, or turns became scarce.
    """

    moved_at: float
    _interval: float = 0.0
    _put_off: int = 0

    def note_free(self, now: float, *, is_scarce: bool) -> None:
        """A turn has come free; where somebody may have to wait it matters how fast they do."""
        self._put_off = 0
        if is_scarce:
            self._interval += _WEIGHT * (min(now - self.moved_at, 1.0) - self._interval)
            self.moved_at = now

    def seconds_to_wait(self, waiting: int, now: float) -> float:
        """How long one more would wait behind so many others, as it looks now."""
        stood = now - self.moved_at
        return (stood if stood > PATIENCE_SECONDS else self._interval) * (waiting + 1)

    def put_off(self, now: float) -> float:
        """Seconds after which the next one that gets no turn is to come back."""
        stood = now - self.moved_at
        spacing = max(self._interval, stood * _SPACING_OF_STILLNESS, _SPACING_SECONDS)
        seconds = LEAST_SECONDS + self._put_off * spacing % MOST_SECONDS
        self._put_off += 1
        return seconds
