"""How many statuses a term writes a second, of all kinds together. No I/O, no clock."""

from __future__ import annotations

_LEAST_WAIT_SECONDS = 0.001


class Allowance:
    """A rate with a second's worth of burst.

    A burst of changes mostly comes with a burst of creations, of Schedules or of Jobs, and a status
    costs the API server as much as several of those. So while more statuses have changed than a few
    seconds' worth, and ever more do, nothing is written until one has waited for the patience. From
    then on the rate grows with every second that the oldest waits, so that ten thousand statuses
    are written within a minute where the API server can.
    """

    PATIENCE_SECONDS = 20.0
    #: More than this much of the rate, in seconds, is a burst.
    _BURST_SECONDS = 4
    #: The wait between two looks whether a burst is over.
    _LOOK_SECONDS = 0.5

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = now

    def is_burst(self, waiting: int) -> bool:
        """Whether so many changed statuses are more than a few seconds' worth."""
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
        """0.0 and one write less left, or the seconds until it is worth asking again.

        Args:
            now: monotonic seconds.
            waiting: how many statuses have changed and wait.
            waited_seconds: how long the one that would be written has waited.
            is_rising: whether ever more statuses change.
            patience_seconds: how long a burst may hold writes up.
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
        # A wait below a clock's step would be none, and the caller would spin.
        return max((1 - self._left) / rate, _LEAST_WAIT_SECONDS)
