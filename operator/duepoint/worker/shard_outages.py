"""Which shards cannot be claimed from while the others can, and what is said about it.

A node of a cluster may be away, or emptied, alone: its shards are looked at again and again, and
the rest fires on. The keepalive has a node of its own, too. A shard that is only on its way to
another node is nobody's trouble unless it stays so, as after a move that was broken off. Pure;
instants are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages

#: How long a shard may be on its way before somebody is told.
_MOVING_SECONDS = 10.0


class ShardOutages:
    """What is away at the moment.

    Attributes:
        keepalive: why the last keepalive was not answered; None where it was.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._away: dict[messages.ShardId, tuple[float, errors.TryLater]] = {}
        self.keepalive: errors.TryLater | None = None

    def record(self, answers: Iterable[messages.Claimed], now: float) -> bool:
        """What shards have answered; whether any of them is away, or was until now."""
        concerned = bool(self._away)
        for answer in answers:
            if answer.trouble is not None:
                since, _ = self._away.get(answer.shard, (now, None))
                self._away[answer.shard] = since, answer.trouble
                concerned = True
            elif concerned:
                self._away.pop(answer.shard, None)
        return concerned

    def has(self, shards: Iterable[messages.ShardId]) -> bool:
        """Whether all of these are known to be away."""
        return self._away.keys() >= set(shards)

    def trouble(self, now: float) -> str | None:
        """One line of what is wrong; None where nothing is."""
        told = [
            trouble
            for since, trouble in self._away.values()
            if not isinstance(trouble, queue_errors.ShardMoving) or now - since > _MOVING_SECONDS
        ]
        if told:
            return f"{len(told)} of {self._shards} shards are waited for: {told[0]}"
        return None if self.keepalive is None else str(self.keepalive)
