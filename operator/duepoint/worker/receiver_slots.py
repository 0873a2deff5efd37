"""Places for attempts that depend on a server of somebody else's: webhooks, Kafka, other Redis.

Such a server may hang, and an attempt at it lasts until its time limit. No namespace gets more than
its share of the places (``duepoint.shares``), however many servers it names. Whoever gets none
waits for one only where it is to be had soon; what waits is in this worker's hands and takes the
room of what it could claim otherwise. All else is put off: due again a little later, and no attempt
is used up.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from duepoint import clock as clocks
from duepoint import shares
from duepoint.targets import pace

#: While places keep coming free, one is waited for as long as this: of a burst that is soon over
#: each slot that is put off would cost more than all the rest of it.
_MOST_SECONDS = 1.0


class ReceiverSlots:
    """Gives places."""

    def __init__(self, clock: clocks.Clock, places: int) -> None:
        self._clock = clock
        self._places: shares.FairPlaces[str] = shares.FairPlaces(places)
        #: Of namespaces that had to wait.
        self._paces: dict[str, pace.Pace] = {}

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[float]:
        """Around an attempt of this namespace; gives 0.0, or the seconds to try again after."""
        seconds = 0.0 if self.take(namespace) else await self.enter(namespace)
        if seconds:
            yield seconds
            return
        try:
            yield 0.0
        finally:
            self.leave(namespace)

    def take(self, namespace: str) -> bool:
        """Whether there is a place right now; then it is this caller's, who must ``leave``."""
        return self._places.take(namespace)

    async def enter(self, namespace: str) -> float:
        """0.0 = there is a place, who has it must ``leave``; else seconds to try again after."""
        if self._places.take(namespace):
            return 0.0
        now = self._clock.monotonic()
        known = self._paces.setdefault(namespace, pace.Pace(now))
        expected = known.seconds_to_wait(self._places.waiting(namespace), now)
        stands_still = now - known.moved_at > pace.PATIENCE_SECONDS
        if not self._has_any(namespace):  # the next place is its own: the pace is that of others
            expected = 0.0
        elif stands_still or expected > _MOST_SECONDS:
            return known.put_off(now)
        if await self._places.wait(namespace, max(pace.PATIENCE_SECONDS, 2 * expected)):
            return 0.0
        return known.put_off(self._clock.monotonic())

    def leave(self, namespace: str) -> None:
        """The place is free again."""
        known = self._paces.get(namespace)
        if known is not None:
            known.note_free(self._clock.monotonic(), is_scarce=True)
        self._places.leave(namespace)
        if known is not None and not self._places.held(namespace):
            self._paces.pop(namespace, None)

    def _has_any(self, namespace: str) -> bool:
        """Whether a place is taken, or waited for, by the namespace."""
        return self._places.held(namespace) > 0 or self._places.waiting(namespace) > 0
