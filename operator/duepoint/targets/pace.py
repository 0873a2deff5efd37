"""How fast turns come free where some wait for them, and when what was put off is to come back.

What waits in memory holds something that others could use, so a turn is waited for only where
one is to be had soon. What is put off comes back in order, about twice as fast as turns come free,
and further apart the longer none has: more of them would find no turn, and each that comes back
and is put off again costs a claim and a settlement, for which other slots wait. Pure; instants are
monotonic seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: A turn is waited for in memory for about so long.
PATIENCE_SECONDS = 0.25
#: And while turns keep coming free, as long as this is expected to be enough.
_MOST_PATIENCE_SECONDS = 1.0
#: Bounds of what a delivery is put off by.
LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0
#: So far from one another do those come back that were put off, at least.
_SPACING_SECONDS = 0.001
#: And as a part of the interval at which turns come free: some come back to a turn that is taken.
_SPACING_OF_INTERVAL = 0.5
#: The longer no turn has come free, the further apart, up to this.
_SPACING_OF_STILLNESS = 0.1
_MOST_SPACING_SECONDS = 2.0
#: Weight of the newest interval between two turns that ended.
_WEIGHT = 0.1


@dataclass(slots=True)
class Pace:
    """Of the turns of one receiver, of one namespace, or of all Jobs.

    Attributes:
        moved_at: when a turn came free last, or turns became scarce.
    """

    moved_at: float
    _interval: float = 0.0
    #: By owner of what waits, when the last that was put off comes back.
    _last_back_at: dict[str, float] = field(default_factory=dict)

    def note_free(self, now: float, *, is_scarce: bool) -> None:
        """A turn has come free; where turns are scarce, how fast they do is recorded."""
        if is_scarce:
            self._interval += _WEIGHT * (min(now - self.moved_at, 1.0) - self._interval)
            self.moved_at = now

    def seconds_to_wait(self, waiting: int, now: float) -> float:
        """How long one more would wait behind so many others, as it looks now."""
        stood = now - self.moved_at
        return (stood if stood > PATIENCE_SECONDS else self._interval) * (waiting + 1)

    def patience(self, waiting: int, now: float) -> float:
        """Seconds that one more may wait for its turn behind so many others; 0.0 = it is put off.

        While turns keep coming free it waits for longer: to put off and claim again costs more than
        a request does, and with them a burst that two cores could carry grows.
        """
        expected = self.seconds_to_wait(waiting, now)
        if now - self.moved_at > PATIENCE_SECONDS or expected > _MOST_PATIENCE_SECONDS:
            return 0.0
        return max(PATIENCE_SECONDS, 2 * expected)

    def put_off(self, now: float, owner: str = "") -> float:
        """Seconds after which the next one that gets no turn is to come back.

        Args:
            owner: what one owner has put off does not put off another's.
        """
        stood = now - self.moved_at
        wanted = max(self._interval * _SPACING_OF_INTERVAL, stood * _SPACING_OF_STILLNESS)
        spacing = min(max(wanted, _SPACING_SECONDS), _MOST_SPACING_SECONDS)
        backs = {other: at for other, at in self._last_back_at.items() if at > now}
        seconds = max(backs.get(owner, -math.inf) + spacing - now, LEAST_SECONDS)
        if seconds > MOST_SECONDS:  # the order begins anew, between those that are expected
            seconds = LEAST_SECONDS + (seconds - LEAST_SECONDS) % (MOST_SECONDS - LEAST_SECONDS)
        backs[owner] = now + seconds
        self._last_back_at = backs
        return seconds
