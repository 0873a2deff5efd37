"""How many points a worker may have in hand, and how many of which shard it asks for next.

What one worker holds no other can fire, so usually it holds twice what it can try at a time. Points
that are fired together are gone in milliseconds: while some are, there is room for whole batches
more, and a shard with many points is asked for all of them instead of its share, as far as there is
room: a claim costs a millisecond, whether it brings eight points or eighty. For the same reason
little room is not shared out point by point where many are due: it is waited for a moment until
there is more, and shards with many points are asked in turn. The other shards keep
being asked for their share each time, so that a burst in one namespace does not keep the others
waiting. Where there is no room, namespaces that have few points in hand get some all the same.
Instants are monotonic seconds.

Of the claims of one moment a burst lets the single slots of others go first (``SmallerFirst``), and
it begins and ends a little at a time (``FewInATurn``), so that others need not wait for all of it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from duepoint import clock as clocks
from duepoint.clock import Clock
from duepoint.delayqueue import messages, sharding
from duepoint.worker.slots import JobSlots

#: Whole batches in hand besides the usual room while points are fired together; what is due
#: meanwhile in a quiet namespace stands behind all of them. With three it was half as late again,
#: and no more were fired.
_MORE_BATCHES = 1
#: So long after the last ones.
_TOGETHER_SECONDS = 1.0
#: While room is scarce, namespaces with fewer points in hand are asked for so many of each shard,
#: or for a part of the whole room where that is small: a quiet one does not wait until the burst of
#: another is put off.
FEW = 16
_FEW_OF_ROOM = 1 / 16
#: For them a worker takes so many points more than it should have in hand.
_BEYOND = 128
#: A shard with so many points is asked after those with fewer.
MANY = 8
#: Where more is due, this part of all the room is waited for, and no longer than this: a point that
#: ends would else be replaced by a claim of a single one, which is as expensive as one of many.
_ENOUGH_OF_ROOM = 1 / 4
_SHORT_SECONDS = 0.05
#: Of a shard with many points, a few are asked for beyond the room when it has waited for so long.
_FEW_OF_MANY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Shards to claim from, with the most points of each."""

    shards: tuple[messages.ShardId, ...]
    batch: int


#: How many points a shard will probably give.
Expect = Callable[[messages.ShardId], int]
#: Claims to make now, and the shards to look at again because there is no room for them.
Asks = tuple[list[Ask], Sequence[messages.ShardId]]


class ClaimBudget:
    """Knows whether points are fired together.

    Attributes:
        in_hand: points, by the namespaces that their shards hold (``sharding.namespaces_of``).
        deep: how many points more were due in each shard than its last claim could take.
        crowded_since: when shards with many points began to wait for room; a claim ends that.
        wanted: as much room as those that wait for it were promised, at most.
    """

    def __init__(self) -> None:
        self._together_until = float("-inf")
        self.in_hand: collections.Counter[int] = collections.Counter()
        self.deep: dict[messages.ShardId, int] = {}
        self.crowded_since: dict[messages.ShardId, float] = {}
        self.wanted = 1
        self._short_since: float | None = None
        #: Shards with many points that have let others go first.
        self._stood_back: set[messages.ShardId] = set()

    def fired_together(self, now: float) -> None:
        """Some points have just been fired together."""
        self._together_until = now + _TOGETHER_SECONDS

    def free(self, usual: int, *, batch: int, now: float) -> int:
        """How many points more may be claimed, where it would usually be so many."""
        return usual + (_MORE_BATCHES * batch if now < self._together_until else 0)

    def waits_for_room(
        self,
        due: Sequence[messages.ShardId],
        free: int,
        *,
        most: int,
        batch: int,
        now: float,
        expected: Expect = lambda _: 0,
    ) -> bool:
        """Whether to claim nothing yet, because there is little room and more comes soon.

        Args:
            free: as ``free`` says.
            most: points that should be in hand.
            expected: how many points a shard will probably give.
        """
        enough = min(batch, max(1, int(most * _ENOUGH_OF_ROOM)))
        if free < enough:  # mostly there is room, and nothing has to be counted
            self.wanted = min(enough, sum(max(1, self._count(shard, expected)) for shard in due))
            since = now if self._short_since is None else self._short_since
            if free < self.wanted and now - since < _SHORT_SECONDS:
                self._short_since = since
                return True
        self._short_since = None
        return False

    def stand_back(
        self,
        due: Sequence[messages.ShardId],
        expected: Expect,
        *,
        others_soon: Callable[[], bool],
    ) -> set[messages.ShardId]:
        """Shards with many points that are to be asked a moment later, once, after others.

        Args:
            expected: how many points a shard will probably give.
            others_soon: whether other shards are due within that moment.
        """
        many = {shard for shard in due if expected(shard) >= MANY} - self._stood_back
        self._stood_back.difference_update(due)
        if not many or not others_soon():
            return set()
        self._stood_back |= many
        return many

    def few(
        self,
        due: Sequence[messages.ShardId],
        *,
        most: int,
        left: int,
        batch: int,
        now: float,
        expected: Expect = lambda _: 0,
    ) -> Ask | None:
        """What to claim although room is scarce; None where no namespace has so little in hand.

        Args:
            most: points that should be in hand.
            left: how many of these may still be taken; below 0 where more are in hand.
            expected: how many points a shard will probably give.
        """
        few = min(FEW, int(most * _FEW_OF_ROOM), batch)
        quiet = [
            shard
            for shard in due
            if self.in_hand[sharding.namespaces_of(shard)] < few
            and (self._count(shard, expected) < MANY or self._has_waited(shard, now))
        ]
        if not quiet:
            return None
        shards = tuple(quiet[: max(0, left + _BEYOND) // few])
        return Ask(shards=shards, batch=few) if shards else None

    def asks(
        self,
        due: Sequence[messages.ShardId],
        usual: int,
        *,
        batch: int,
        now: float,
        expected: Expect = lambda _: 0,
    ) -> Asks:
        """What to claim of the shards that are due, a point at least; of none, nothing.

        Args:
            expected: how many points a shard will probably give.
        """
        if not due:
            return [], ()
        free = max(1, self.free(usual, batch=batch, now=now))
        crowded = [shard for shard in due if self._count(shard, expected) >= MANY]
        is_together = now < self._together_until
        share = free // len(due)
        if not crowded or share >= (batch if is_together else FEW):
            # The batch is per shard: together they may fill the room, not each of them.
            first, later = due[:free], due[free:]
            size = min(batch, free // len(first))
            return [Ask(shards=part, batch=size) for part in _few_first(first, expected)], later
        quiet = tuple(shard for shard in due if shard not in crowded)
        if is_together:
            large = self._whole(crowded, free, batch, expected)
        else:
            large = self._in_turn(crowded, free - share * len(quiet), batch)
        asks = [large]
        if quiet:
            asks.insert(0, Ask(shards=quiet[:free], batch=max(1, share)))
        left = tuple(shard for shard in crowded if shard not in large.shards)
        return asks, (*left, *quiet[free:])

    def _whole(
        self,
        crowded: Sequence[messages.ShardId],
        free: int,
        batch: int,
        expected: Expect,
    ) -> Ask:
        """As many of these shards as there is room for with all that is due there."""
        chosen, size = 0, 0
        for shard in crowded:
            needed = max(size, min(batch, self._count(shard, expected)))
            if chosen and needed * (chosen + 1) > free:
                break
            chosen, size = chosen + 1, needed
        return Ask(shards=tuple(crowded[:chosen]), batch=size)

    def _in_turn(self, crowded: Sequence[messages.ShardId], free: int, batch: int) -> Ask:
        """A few points of as many of these shards as there is room for; the others are next.

        Those of namespaces that have the fewest points in hand come first.
        """
        shards = sorted(crowded, key=lambda shard: self.in_hand[sharding.namespaces_of(shard)])
        chosen = shards[: max(1, free // FEW)]
        return Ask(shards=tuple(chosen), batch=min(batch, max(1, free // len(chosen))))

    def _count(self, shard: messages.ShardId, expected: Expect) -> int:
        """About how many points of a shard are due."""
        return max(self.deep.get(shard, 0), expected(shard))

    def _has_waited(self, shard: messages.ShardId, now: float) -> bool:
        """Whether a shard with many points has waited for long; asked when it might have a few."""
        since = self.crowded_since.setdefault(shard, now)
        return now - since >= _FEW_OF_MANY_SECONDS


def _few_first(
    shards: Sequence[messages.ShardId], expected: Expect
) -> Iterator[tuple[messages.ShardId, ...]]:
    """The shards in a part or two: an answer with many points keeps no few points waiting.

    Answers of one round trip come together, and the server collects 400 points in 10 ms.
    """
    parts: tuple[list[messages.ShardId], list[messages.ShardId]] = ([], [])
    for shard in shards:
        parts[len(shards) > 1 and expected(shard) >= MANY].append(shard)
    yield from (tuple(part) for part in parts if part)


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """The points of one claim that are still in hand.

    Attributes:
        group: the namespaces of their shard, as ``ClaimBudget.in_hand`` has them.
        left: how many there are.
        unknown: how many ``jobs`` counts among those that may be Jobs.
        on_change: called when fewer are in hand, or when fewer may be Jobs.
    """

    budget: ClaimBudget
    jobs: JobSlots
    clock: Clock
    on_change: Callable[[int], None]
    group: int
    left: int
    unknown: int = 0

    def ended(self, points: int) -> None:
        """So many more have ended."""
        points = min(points, self.left)
        self.left -= points
        self.budget.in_hand[self.group] -= points
        self.on_change(points)

    def ended_together(self, points: int) -> None:
        """So many have ended at once, as points do that are fired together."""
        self.budget.fired_together(self.clock.monotonic())
        self.ended(points)

    def begun(self, points: int) -> None:
        """So many have begun: those that are Jobs stand in the line now."""
        points = min(points, self.unknown)
        self.unknown -= points
        self.jobs.unknown -= points

    def kinds_known(self) -> None:
        """Those among them that are Jobs stand in the line; what is no Job leaves room."""
        self.begun(self.unknown)
        self.on_change(0)

    def close(self) -> None:
        """None of them is in hand any more."""
        self.kinds_known()
        self.ended(self.left)


# -- which claims begin first ----------------------------------------------------------------------

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
    if points < _LARGE_CLAIM:
        return points
    return min(map(len, claim.by_lane.values()))


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
