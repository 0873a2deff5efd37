"""Points that may have ended the workers that tried them: few at a time, then alone.

A worker that dies had perhaps a hundred points in hand, and one of them ended it. So no point is
suspected for having been there: only one that was all its worker had is, and Redis counts that
worker as lost to it until the worker takes it back (``Isolation``). Expired claims are taken over
in ever smaller parts, of which a worker has one in hand at a time (``SuspectClaims``), so that a
culprit is soon alone.
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

#: After so many lost owners the worker empties its hands for a point; before, they may be empty.
ALONE_FROM = 4
#: For so long it then has nothing else in hand; twice as long after each further lost owner.
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 600.0


class Isolation:
    """Has a suspected point in hand alone, so that a crash counts against that point.

    A point that comes alone, after its owner was lost, to a worker with empty hands is counted at
    once, which is taken back before anything else is claimed: one round trip. A point that has lost
    several owners is worth more: the worker claims nothing else, lets the rest end, tries that
    point alone, and claims nothing for a while, longer each time, because a crash may come late. So
    a slow neighbour is never suspected, and a culprit is after some crashes.

    Attributes:
        claim: the one that is, or is to be, in hand alone.

    Args:
        lease_seconds: how long it is tried to take the count back while its shard does not answer.
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
        """Whether this claim shall be in hand alone; if so nothing else is asked for any more.

        Args:
            in_company: something else is in hand, or on its way.
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
        """Return when the claim is all that is in hand, and counted; or never will be."""
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
        """Return when something else may be asked for, and nothing is counted as alone.

        Raises TryLater while that cannot be taken back.
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
        """This claim is not in hand any more; ``is_innocent``: that says nothing of its point."""
        if self.claim is claim and is_innocent and self._is_counted:
            self._until = self._clock.monotonic()  # taken back before the next claim
        elif self.claim is claim:
            self.claim = None
        self.note_change()

    def note_change(self) -> None:
        """Something that was in hand, or asked for, is not any more."""
        self._change.set()

    def close(self) -> None:
        """Nothing is asked for any more."""
        self._is_over = True
        self.note_change()

    async def leave(self) -> None:
        """This worker ends, and did not end by the point that it has given back."""
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
            pass  # the index is another one, and knows nothing of it
        self._forget()

    def _forget(self) -> None:
        self.claim = None
        self.note_change()


class SuspectClaims:
    """Claims of points that have lost two owners: one of them is in hand at a time.

    A worker that took all parts of such claims at once would take the neighbours along each time,
    and what has not ended by then gets as suspicious as the culprit. So the others wait until those
    in hand have ended, or have been in hand for so long that they do not end workers at once. Fresh
    points do not wait, nor do those that have lost one owner. Pure; instants are monotonic seconds.

    Args:
        patience_seconds: in hand for so long, a claim holds up no other.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._until = float("-inf")
        self._waiting: set[messages.ShardId] = set()

    def begin(self, now: float) -> bool:
        """Whether a claim of suspects may be made now; then no other may for a while."""
        if now < self._until:
            return False
        self._until = now + self._patience
        return True

    def wait(self, shard: messages.ShardId, now: float) -> float:
        """Seconds until this shard may be looked at again, if nothing ends sooner."""
        self._waiting.add(shard)
        return max(self._until - now, 0.0)

    def end(self) -> tuple[messages.ShardId, ...]:
        """What was in hand has ended, or there was nothing: the shards to look at again."""
        self._until = float("-inf")
        waiting, self._waiting = tuple(self._waiting), set()
        return waiting
