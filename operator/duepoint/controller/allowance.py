"""How many statuses a term writes a second, of all kinds together. No I/O, no clock."""

from __future__ import annotations

_LEAST_WAIT_SECONDS = 0.001


class Allowance:
    """A rate with a second's worth of burst.

    Once a status is later than the patience, the rate grows with every second that it is, so that
    ten thousand statuses are written within a minute where the API server can.
    """

    PATIENCE_SECONDS = 20.0

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = now

    def take(self, now: float, *, late_seconds: float = 0.0) -> float:
        """0.0 and one write less left, or the seconds until it is worth asking again.

        Args:
            now: monotonic seconds.
            late_seconds: how long the one that would be written has been due.
        """
        rate = self._per_second * (1 + max(0.0, late_seconds - self.PATIENCE_SECONDS))
        self._left = min(rate, self._left + (now - self._at) * rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        # A wait below a clock's step would be none, and the caller would spin.
        return max((1 - self._left) / rate, _LEAST_WAIT_SECONDS)
