"""Isolates poison: points that may have killed the workers that tried them.

A worker that dies may have had a hundred points in hand, and one of them killed it. So a point is
not suspected for being among them, only for being the one point that its worker had: Redis then
counts that worker as lost to the point until the worker takes the count back. Workers take expired
claims over in ever smaller parts, and hold one part at a time, so that a culprit is soon alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from duepoint import clock as clocks
from duepoint import errors
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue

#: From this many lost owners on, the worker isolates a point; before, only if it has no other.
ALONE_FROM = 4
#: How long it then claims nothing else; twice as long after each further lost owner.
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 600.0


class Isolation:
    """Holds a suspected point alone, so that a crash counts against that point.

    If a point that has lost an owner comes alone to a worker without other points, the worker
    counts itself as lost to it at once, and takes that back before its next claim: one round trip.
    For a point that has lost several owners the worker claims nothing else, lets its other points
    end, tries that point alone, and claims nothing for a while, longer each time, because a crash
    may come late. A slow neighbour is never suspected; a culprit is found after some crashes.

    Attributes:
        claim: the one that is, or is about to be, in hand alone.
    """

    def __init__(self, queue: DelayQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self.claim: messages.Claim | None = None
        self._is_counted = False
        self._until = 0.0
        self._is_over = False
        self._change = asyncio.Event()
        self._turn = asyncio.Lock()

    def takes(self, claim: messages.Claim, *, in_company: bool) -> bool:
        """Isolate this claim if it is suspected, and return whether; claims must wait then.

        Args:
            in_company: whether other points are in hand, or another claim is in flight.
        """
        if self.claim is not None or not claim.reclaimed or self._is_over:
            return False
        if len(claim.points) + len(claim.unknown_members) > 1:
            return False
        if in_company and claim.reclaimed < ALONE_FROM:
            return False
        self.claim, self._is_counted = claim, False
        return True

    async def begin(self, is_alone: Callable[[], bool]) -> None:
        """Wait until nothing else is in hand, then count the crash; return early if that fails."""
        claim = self.claim
        assert claim is not None  # noqa: S101 - ``takes`` has set it
        while not is_alone() and not self._is_over:
            self._change.clear()
            await self._change.wait()
        try:
            is_counted = not self._is_over and await self._queue.claims.count_crash(claim)
        except (errors.TryLater, errors.WorldChanged):
            is_counted = False
        if not is_counted:
            self._forget()
            return
        self._is_counted = True
        self._until = self._clock.monotonic()
        if claim.reclaimed >= ALONE_FROM:
            twice = 2.0 ** (claim.reclaimed - ALONE_FROM)
            self._until += min(_FIRST_SECONDS * twice, _MOST_SECONDS)
        self.note_change()

    async def wait_to_ask(self) -> None:
        """Wait until the worker may claim again; by then the counted crash is taken back."""
        async with self._turn:
            while self.claim is not None and not self._is_over:
                left = self._until - self._clock.monotonic() if self._is_counted else None
                if left is not None and left <= 0:
                    await self.take_back()
                    return
                self._change.clear()
                await clocks.wait_for(self._change, left, self._clock)

    def end(self, claim: messages.Claim, *, is_innocent: bool) -> None:
        """Note that this claim has ended; ``is_innocent``: without an attempt at its point."""
        if self.claim is claim and is_innocent and self._is_counted:
            self._until = self._clock.monotonic()  # taken back before the next claim
        elif self.claim is claim:
            self.claim = None
        self.note_change()

    def note_change(self) -> None:
        """Note that a point has left the worker's hands, or a claim has been answered."""
        self._change.set()

    def close(self) -> None:
        """Stop isolating: this worker claims nothing more."""
        self._is_over = True
        self.note_change()

    async def take_back(self) -> None:
        """Take a counted crash back: the point has not killed this worker.

        If that fails, one too many stays counted; it takes several to bury a point.
        """
        if self.claim is not None and self._is_counted:
            with contextlib.suppress(errors.TryLater, errors.WorldChanged):
                await self._queue.claims.survive(self.claim)
        self._forget()

    def _forget(self) -> None:
        self.claim = None
        self.note_change()
