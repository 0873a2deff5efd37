"""Concurrency limits for attempts: users' servers may hang until an attempt's time limit.

No owner gets more than its share of the places (``duepoint.shares``): at a worker the owners are
namespaces, and within a namespace they are its receivers. An attempt without a place waits only if
it can expect one soon: a waiting attempt stays claimed by this worker and takes the room of other
claims. Otherwise the attempt is put off: due again a little later, and not counted as an attempt.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from duepoint import clock as clocks
from duepoint import shares


class ReceiverPlaces:
    """Places for the attempts of one event loop.

    Args:
        most: places that one owner may have, however many are free; None = its share of them.
    """

    def __init__(self, clock: clocks.Clock, places: int, *, most: int | None = None) -> None:
        self._clock = clock
        self._places: shares.FairPlaces[str] = shares.FairPlaces(places, most=most)
        #: The paces of owners that had to wait.
        self._paces: dict[str, shares.Pace] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no attempt has a place."""
        return not self._places.taken

    async def enter(self, owner: str) -> float:
        """Take a place, perhaps after a short wait: 0.0 = ``leave`` it; else seconds to a retry."""
        if self._places.take(owner):
            return 0.0
        now = self._clock.monotonic()
        pace = self._paces.setdefault(owner, shares.Pace(now))
        seconds = pace.patience(self._places.waiting(owner), now)
        if not self._places.held(owner) and not self._places.waiting(owner):
            seconds = shares.PATIENCE_SECONDS  # the next place is its own
        if seconds and await self._places.wait(owner, seconds):
            return 0.0
        return pace.put_off(self._clock.monotonic())

    def leave(self, owner: str) -> None:
        """Give a place back."""
        pace = self._paces.get(owner)
        if pace is not None:
            pace.note_free(self._clock.monotonic(), is_scarce=True)
        self._places.leave(owner)
        if pace is not None and not self._places.held(owner):
            self._paces.pop(owner, None)

    @contextlib.asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[float]:
        """Hold a place during an attempt of this owner; yields what ``enter`` returns."""
        seconds = await self.enter(owner)
        try:
            yield seconds
        finally:
            if not seconds:
                self.leave(owner)
