"""Which of the claims of one moment begins first: a burst lets the single slots of others go.

And how a burst begins and ends: a little at a time, so that others need not wait for all of it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from duepoint import clock as clocks
from duepoint.clock import Clock
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.claims import chaincolumns

#: A claim of so many points or more lets smaller ones of other namespaces go first, for as long as
#: this. Most have ended by then; those that wait for a receiver have sent their requests.
_LARGE_CLAIM = 16
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


def weight(claim: messages.Claim) -> int:
    """What a claim counts as in these orders: its points, or those of the namespace with fewest.

    A shard holds the namespaces of a sixteenth of all. The claim that brings a few points of one
    namespace with the burst of another is not to wait as that burst does.
    """
    points = len(claim.points)
    if points < _LARGE_CLAIM or len(chaincolumns.lanes_of(claim)) < 2:
        return points
    if isinstance(claim.lanes, chaincolumns.LanesOfChains):
        return min(map(len, claim.lanes.by_lane().values()))
    by_lane = collections.Counter(claim.lanes[point.schedule_id] for point in claim.points)
    return min(by_lane.values())  # a lane may hold nothing but members that cannot be read


class SmallerFirst:
    """Lets a large claim wait a moment for much smaller claims that came with it.

    One namespace's burst and another's single slot are due in the same second, in shards of their
    own. The loop is one thread: the claim that begins first delays the other by all of its work.
    Claims of shards with the same namespaces do not wait for one another.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: collections.deque[_Begun] = collections.deque()
        self._few = FewInATurn(POINTS_IN_A_TURN)

    @property
    def known(self) -> int:
        """Claims that a later one might wait for."""
        return len(self._begun)

    @contextlib.asynccontextmanager
    async def of(self, claim: messages.Claim) -> AsyncIterator[None]:
        """Around one claim; of many that come together a few points begin in each turn."""
        counted = weight(claim)
        async with self.turn(claim.shard, counted):
            await self._few.turn(counted)
            yield

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


#: Attempts in one turn: a beginning takes up to a millisecond, for a connection is opened, or the
#: attempt is put off.
ATTEMPTS_IN_A_TURN = 2
#: Points planned in one turn: those that are planned alone take up to 0.2 ms each.
POINTS_IN_A_TURN = 8
#: A wait for a turn counts as much as so many points fewer in each second.
_POINTS_OF_A_SECOND = 1_000


class FewInATurn:
    """Lets a few of many continue in each turn of the event loop, small ones first.

    Between two turns the loop looks for answers and for due points. A hundred attempts that begin,
    fail or are put off in one turn take 50 ms, for which the slots of others would wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._waiting: list[tuple[float, int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._is_counting = False

    async def turn(self, count: int = 1) -> None:
        """Returns at once, or in a later turn of the loop; more than the most have one alone."""
        self._count()
        if self._left > 0 and not self._waiting:
            self._left -= count
            return
        loop = asyncio.get_running_loop()
        place = loop.time() * _POINTS_OF_A_SECOND + count
        waiting = loop.create_future()
        heapq.heappush(self._waiting, (place, next(self._numbers), count, waiting))
        await waiting

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_counting = False
        self._left = self._most
        while self._left > 0 and self._waiting:
            _, _, count, waiting = heapq.heappop(self._waiting)
            if not waiting.done():  # else its task was cancelled
                waiting.set_result(None)
                self._left -= count
        if self._left < self._most:
            self._count()
