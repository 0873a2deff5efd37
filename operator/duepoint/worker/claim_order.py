"""Which of the claims of one moment begins first: a burst lets the single slots of others go."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from duepoint import clock as clocks
from duepoint.clock import Clock
from duepoint.delayqueue import messages, sharding

#: A claim of so many points or more lets smaller ones of other namespaces go first, for as long as
#: this. Most have ended by then; those that wait for a receiver have sent their requests.
_LARGE_CLAIM = 8
SMALLER_FIRST_SECONDS = 0.05
#: So many times as many points. Within one burst claims differ less: none of it waits for the rest.
_MUCH_LARGER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A claim in progress.

    Attributes:
        group: which namespaces its shard holds.
        at: monotonic time of the beginning.
    """

    group: int
    points: int
    at: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class SmallerFirst:
    """Lets a large claim wait a moment for much smaller claims that came with it.

    One namespace's burst and another's single slot are due in the same second, in shards of their
    own. The loop is one thread: the claim that begins first delays the other by all of its work.
    Claims of shards with the same namespaces do not wait for one another.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: collections.deque[_Begun] = collections.deque()

    @property
    def known(self) -> int:
        """Claims that a later one might wait for."""
        return len(self._begun)

    @contextlib.asynccontextmanager
    async def turn(self, shard: messages.ShardId, points: int) -> AsyncIterator[None]:
        """Around one claim of so many points of this shard."""
        group = sharding.namespaces_of(shard)
        if points >= _LARGE_CLAIM:
            await self._wait_for_smaller(group, points)
        claim = _Begun(group=group, points=points, at=self._clock.monotonic())
        self._begun.append(claim)
        try:
            yield
        finally:
            claim.ended.set()
            self._forget()

    async def _wait_for_smaller(self, group: int, points: int) -> None:
        await asyncio.sleep(0)  # those that were handed over in the same moment begin
        for other in tuple(self._begun):
            left = other.at + SMALLER_FIRST_SECONDS - self._clock.monotonic()
            if left > 0 and other.group != group and _MUCH_LARGER * other.points <= points:
                await clocks.wait_for(other.ended, left, self._clock)

    def _forget(self) -> None:
        """Of those that have ended, or that are waited for no longer."""
        latest = self._clock.monotonic() - SMALLER_FIRST_SECONDS
        begun = self._begun
        while begun and (begun[0].at <= latest or begun[0].ended.is_set()):
            begun.popleft()
