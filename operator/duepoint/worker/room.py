"""How many points a worker may have in hand, and of which shards it asks for how many next.

What one worker holds no other can fire, so it holds some times what it can try at a time, and no
more. Shards that are due get a ``PART`` of what is free each; those that had more than the last
claim could take get all of it as far as there is room, because a claim of one point costs as much
as one of hundreds. Shards of the namespaces with the fewest points in hand come first, and where
nothing is free, namespaces with less than a part in hand get one all the same: the burst of one
namespace keeps no other waiting.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duepoint.delayqueue import messages, sharding
from duepoint.worker.slots import JobSlots

#: Points of one claim of a shard of which it is not known that more are due.
PART = 16
#: A shard with more waits until this part of the room is free.
_ENOUGH_OF_ROOM = 1 / 8
#: For namespaces with few points in hand a worker takes so many more than it should hold.
_BEYOND = 128


#: Shards to claim from, with the most points of each.
Asks = list[tuple[Sequence[messages.ShardId], int]]


class Room:
    """Counts what is in hand.

    Args:
        most: points that should be in hand.
        batch: most points in one claim.

    Attributes:
        in_hand: points, by the namespaces that their shards hold (``sharding.namespaces_of``).
        more: how many points were due in each shard beside those of its last claim.
    """

    def __init__(self, jobs: JobSlots, *, most: int, batch: int) -> None:
        self._jobs = jobs
        self._most = most
        self._batch = batch
        self._part = max(1, min(PART, most // PART, batch))
        self.in_hand: collections.Counter[int] = collections.Counter()
        self.more: dict[messages.ShardId, int] = {}

    def has_enough(self) -> bool:
        """Whether there is room for any shard."""
        return self._free() >= self._enough()

    def asks(self, due: Sequence[messages.ShardId]) -> tuple[Asks, Sequence[messages.ShardId]]:
        """What to claim of the shards that are due, and those that have to wait for room."""
        free, enough = self._free(), self._enough()
        beyond = min(0, self._most - self.in_hand.total()) + _BEYOND
        asked: dict[int, list[messages.ShardId]] = {}
        later: list[messages.ShardId] = []
        for shard in sorted(due, key=self._in_hand_beside):
            size = min(self._batch, max(self._part, self.more.get(shard, 0)))
            if free >= min(size, enough):
                size = min(size, free)
                free -= size
            elif beyond >= self._part and self._in_hand_beside(shard) < self._part:
                size = self._part
                beyond -= size
            else:
                later.append(shard)
                continue
            asked.setdefault(size, []).append(shard)
        return [(shards, size) for size, shards in asked.items()], later

    def hold(self, claim: messages.Claim, on_change: Callable[[], None]) -> Holding:
        """Count the points of a claim among those in hand.

        Args:
            on_change: called when fewer are in hand, or when fewer may be Jobs.
        """
        size = max(1, len(claim.points) + len(claim.unknown_members))
        group = sharding.namespaces_of(claim.shard)
        self.in_hand[group] += size
        self._jobs.unknown += size
        return Holding(
            room=self, jobs=self._jobs, on_change=on_change, group=group, left=size, unknown=size
        )

    def _free(self) -> int:
        return max(0, self._jobs.room(self._most - self.in_hand.total()))

    def _enough(self) -> int:
        return max(self._part, int(self._jobs.limit(self._most) * _ENOUGH_OF_ROOM))

    def _in_hand_beside(self, shard: messages.ShardId) -> int:
        """Points in hand of the namespaces that this shard holds."""
        return self.in_hand[sharding.namespaces_of(shard)]


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """The points of one claim that are still in hand.

    Attributes:
        group: the namespaces of their shard, as ``Room.in_hand`` has them.
        left: how many there are.
        unknown: how many ``jobs`` counts among those that may be Jobs.
    """

    room: Room
    jobs: JobSlots
    on_change: Callable[[], None]
    group: int
    left: int
    unknown: int

    def ended(self, points: int) -> None:
        """So many more have ended."""
        points = min(points, self.left)
        self.left -= points
        self.room.in_hand[self.group] -= points
        self.on_change()

    def begun(self, points: int) -> None:
        """So many have begun: those that are Jobs stand in the line now."""
        points = min(points, self.unknown)
        self.unknown -= points
        self.jobs.unknown -= points

    def kinds_known(self) -> None:
        """Those among them that are Jobs stand in the line; what is no Job leaves room."""
        self.begun(self.unknown)
        self.on_change()

    def close(self) -> None:
        """None of them is in hand any more."""
        self.kinds_known()
        self.ended(self.left)
