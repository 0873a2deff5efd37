"""How fast turns come free where some wait for them, and when who was put off is to come back.

Whoever waits in memory holds something that others could use, so a turn is waited for only where
one is to be had soon. What is put off comes back in order, about twice as fast as turns come free,
and further apart the longer none has: more of them would find no turn, and each that comes back
and is put off again costs a claim and a settlement, for which other slots wait. Pure; instants are
monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A turn is waited for in memory for about so long.
PATIENCE_SECONDS = 0.25
#: Bounds of what a delivery is put off by.
LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0
#: So far from one another do those come back that were put off, at least.
_SPACING_SECONDS = 0.01
#: And as a part of the interval at which turns come free: some come back to a turn that is taken.
_SPACING_OF_INTERVAL = 0.5
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
    #: When the last of those that were put off comes back.
    _last_back_at: float = 0.0

    def note_free(self, now: float, *, is_scarce: bool) -> None:
        """A turn has come free; where somebody may have to wait it matters how fast they do."""
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
        spacing = max(
            self._interval * _SPACING_OF_INTERVAL, stood * _SPACING_OF_STILLNESS, _SPACING_SECONDS
        )
        first = now + LEAST_SECONDS
        at = max(self._last_back_at + spacing, first)
        if at > now + MOST_SECONDS:  # the order begins anew, between those that are expected
            at = first
        self._last_back_at = at
        return max(at - now, LEAST_SECONDS)
