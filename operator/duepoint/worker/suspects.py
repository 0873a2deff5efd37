"""Isolates poison: points that may have killed the workers that tried them.

A worker that dies may have had a hundred points in hand, and one of them killed it. So a point is
not suspected for being among them, only for being the one point that its worker had: Redis then
counts that worker as lost to the point until the worker takes the count back (``Isolation``).
Workers take expired claims over in ever smaller parts, and hold one part at a time
(``SuspectClaims``), so that a culprit is soon alone.
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

    Args:
        lease_seconds: how long to retry taking the count back while its shard does not answer.
    """

    def __init__(self, queue: DelayQueue, clock: Clock, *, lease_seconds: float) -> None:
        self._queue = queue
        self._clock = clock
        self._lease = lease_seconds
        self.claim: messages.Claim | None = None
        self._is_counted = False
        self._until = 0.0
        self._failing_since: float | None = None
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
        self.claim, self._is_counted, self._failing_since = claim, False, None
        return True

    async def begin(self, is_alone: Callable[[], bool]) -> None:
        """Wait until nothing else is in hand, then count the crash; return early if that fails."""
        claim = self.claim
        assert claim is not None  # noqa: S101 - ``takes`` said so
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
        """Wait until the worker may claim again; by then the counted crash is taken back.

        Raises TryLater while it cannot be taken back.
        """
        claim = self.claim
        if claim is None:
            return
        async with self._turn:
            while (claim := self.claim) is not None and not self._is_over:
                left = self._until - self._clock.monotonic() if self._is_counted else None
                if left is not None and left <= 0:
                    await self._take_back(claim)
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

    async def leave(self) -> None:
        """Take a counted crash back when this worker ends: the point did not kill it."""
        if self.claim is not None and self._is_counted:
            with contextlib.suppress(errors.TryLater, errors.WorldChanged):
                await self._queue.claims.survive(self.claim)

    async def _take_back(self, claim: messages.Claim) -> None:
        now = self._clock.monotonic()
        try:
            await self._queue.claims.survive(claim)
        except errors.TryLater:
            if self._failing_since is None:
                self._failing_since = now
            if now - self._failing_since < self._lease:
                raise
        except errors.WorldChanged:
            pass  # the index is a new one, without that count
        self._forget()

    def _forget(self) -> None:
        self.claim = None
        self.note_change()


class SuspectClaims:
    """Lets a worker hold one claim at a time of points that have lost two owners.

    A worker that took all parts of such claims at once would take the culprit's neighbours down
    with it each time, and they would become as suspicious as the culprit. So the other parts wait
    until the one in hand has ended, or has not killed its worker for a while. Fresh points do not
    wait, nor do points that have lost one owner. Pure; instants are monotonic seconds.

    Args:
        patience_seconds: after this long a claim in hand holds up no other.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._until = float("-inf")
        self._waiting: set[messages.ShardId] = set()

    def begin(self, now: float) -> bool:
        """Whether suspects may be claimed now; if so, no others may for a while."""
        if now < self._until:
            return False
        self._until = now + self._patience
        return True

    def wait(self, shard: messages.ShardId, now: float) -> float:
        """Return the seconds until this shard may be claimed from, if the claim ends no sooner."""
        self._waiting.add(shard)
        return max(self._until - now, 0.0)

    def end(self) -> tuple[messages.ShardId, ...]:
        """Note that no suspects are in hand; return the shards that waited to be claimed from."""
        self._until = float("-inf")
        waiting, self._waiting = tuple(self._waiting), set()
        return waiting
