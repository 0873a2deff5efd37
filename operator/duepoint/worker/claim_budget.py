"""How many points a worker may have in hand, and how many of which shard it asks for next.

What one worker holds no other can fire, so usually it holds twice what it can try at a time. Points
that are fired together are gone in milliseconds: while some are, there is room for whole batches
more, and a shard that had more than it could give (a *deep* one) is asked for a whole batch instead
of its share. The other shards keep being asked for their share each time, so that a burst in one
namespace does not keep the others waiting. Pure; instants are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.worker.slots import JobSlots

#: Whole batches in hand besides the usual room while points are fired together; what is due
#: meanwhile in a quiet namespace stands behind all of them. With three it was half as late again,
#: and no more were fired.
_MORE_BATCHES = 1
#: So long after the last ones.
_TOGETHER_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Shards to claim from, with the most points of each."""

    shards: tuple[messages.ShardId, ...]
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """Claims to make now, and the shards to look at again because there is no room for them."""

    asks: tuple[Ask, ...]
    later: tuple[messages.ShardId, ...]


class ClaimBudget:
    """Knows whether points are fired together, and which shards are deep."""

    def __init__(self) -> None:
        self._together_until = float("-inf")
        self._deep: set[messages.ShardId] = set()

    def fired_together(self, now: float) -> None:
        """Some points have just been fired together."""
        self._together_until = now + _TOGETHER_SECONDS

    def record(self, claimed: messages.Claimed) -> None:
        """Whether this shard had more than it could give."""
        if claimed.more:
            self._deep.add(claimed.shard)
        else:
            self._deep.discard(claimed.shard)

    def free(self, usual: int, *, batch: int, now: float) -> int:
        """How many points more may be claimed, where it would usually be so many."""
        return usual + (_MORE_BATCHES * batch if now < self._together_until else 0)

    def asks(self, due: Sequence[messages.ShardId], usual: int, *, batch: int, now: float) -> Asks:
        """What to claim of the shards that are due, a point at least; of none, nothing."""
        if not due:
            return Asks(asks=(), later=())
        free = max(1, self.free(usual, batch=batch, now=now))
        if now >= self._together_until or free >= batch * len(due):
            return _shares(due, free, batch)
        deep = [shard for shard in due if shard in self._deep]
        quiet = tuple(shard for shard in due if shard not in self._deep)
        if not deep:
            return _shares(due, free, batch)
        whole = max(1, free // batch)
        asks = [Ask(shards=tuple(deep[:whole]), batch=batch)]
        if quiet:
            asks.insert(0, Ask(shards=quiet, batch=max(1, free // len(due))))
        return Asks(asks=tuple(asks), later=tuple(deep[whole:]))


def _shares(due: Sequence[messages.ShardId], free: int, batch: int) -> Asks:
    """The batch is per shard: together they may fill the room, not each of them."""
    now, later = tuple(due[:free]), tuple(due[free:])
    return Asks(asks=(Ask(shards=now, batch=min(batch, free // len(now))),), later=later)


class Holding:
    """The points of one claim that are still in hand.

    Args:
        points: how many there are.
        on_change: called when fewer are in hand, or when fewer may be Jobs.
    """

    def __init__(
        self,
        *,
        budget: ClaimBudget,
        jobs: JobSlots,
        clock: Clock,
        points: int,
        on_change: Callable[[int], None],
    ) -> None:
        self._budget = budget
        self._clock = clock
        self._jobs = jobs
        self._unknown = points
        jobs.unknown += points
        self._on_change = on_change
        self.left = points

    def ended(self, points: int) -> None:
        """So many more have ended."""
        points = min(points, self.left)
        self.left -= points
        self._on_change(points)

    def ended_together(self, points: int) -> None:
        """So many have ended at once, as points do that are fired together."""
        self._budget.fired_together(self._clock.monotonic())
        self.ended(points)

    def ended_up_to(self, under_way: int) -> None:
        """All have ended but those that are tried."""
        self.ended(self.left - under_way)

    def kinds_known(self) -> None:
        """Those among them that are Jobs stand in the line; what is no Job leaves room."""
        self._jobs.unknown -= self._unknown
        self._unknown = 0
        self._on_change(0)

    def close(self) -> None:
        """None of them is in hand any more."""
        self.kinds_known()
        self.ended(self.left)
