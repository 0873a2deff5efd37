"""What has one form over Redis and another in tests: wake-ups and the reader of outcomes.

A worker's turn: ``wait_until_due`` names shards, ``claim`` looks at them, ``read_definitions``
says what the points mean, ``settle`` (or ``plan``, ``split``, ``extend``, ``release``) ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from duepoint import settings
from duepoint.delayqueue import messages

#: Lease of a claim unless told otherwise, and how many points one claim takes at most.
LEASE_SECONDS = 10.0
#: No worker asks for a longer one: whatever ends much later was written by a wrong clock.
LONGEST_LEASE_SECONDS = settings.LONGEST_LEASE_SECONDS
BATCH = 500
#: A shard that is away while others answer is looked at again after so long.
AWAY_SECONDS = 1.0


class Wakeups(Protocol):
    """A worker's alarm clock: sleeps locally, woken early by an insert before the known head.

    Order of use: ``start`` subscribes; the first ``wait_until_due`` returns every shard; each
    answer of ``claim`` is handed to ``note``. After a lost subscription every shard is due again.
    """

    #: Shards for which another live worker is preferred: woken 200-500 ms later.
    standby: frozenset[messages.ShardId]
    #: Told of shards that are due within a timer's step, where it is awake to await that.
    before_due: Callable[[tuple[messages.ShardId, ...]], None]

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def note(self, claimed: messages.Claimed) -> None:
        """Remember when this shard is to be looked at again."""
        ...

    def note_beat(self, beat: messages.Beat) -> None:
        """Look at everything again if the server's clock stepped or the index was made anew."""
        ...

    def look_again(self, shards: Iterable[messages.ShardId], *, after_seconds: float = 0.0) -> None:
        """Name these shards again after so long: their claim failed."""
        ...

    async def wait_until_due(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        """The shards to look at now; empty after ``timeout_seconds`` without any.

        A shard that was returned is not returned again before it was noted or woken.
        """
        ...


class Ledger(Protocol):
    """The ``runs`` streams as the one reporter reads them, and the dead letters."""

    async def start(self) -> None:
        """Subscribe; the first ``wait_for_outcomes`` returns at once."""
        ...

    async def close(self) -> None: ...

    async def wait_for_outcomes(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        """The shards to which something was added; all of them after a (re)subscription."""
        ...

    async def read_outcomes(
        self,
        group: str,
        consumer: str,
        *,
        shards: Collection[messages.ShardId] | None = None,
        count: int = 100,
    ) -> list[messages.OutcomeEntry]:
        """New entries of these shards (default all), at most ``count`` of each."""
        ...

    async def recover_outcomes(
        self, group: str, consumer: str, *, idle_seconds: float = 0.0
    ) -> list[messages.OutcomeEntry]:
        """Entries read before and never acknowledged, by anyone; now this consumer's."""
        ...

    async def ack(self, group: str, entries: Sequence[messages.OutcomeEntry]) -> None:
        """These are in the status now; they leave the stream."""
        ...

    async def dropped(self) -> Mapping[messages.ShardId, int]:
        """Entries that were dropped, unread or not acknowledged, since this was noted last.

        A shard holds a bounded number of bytes, and nothing older than a week.
        """
        ...

    async def forget_dropped(self, dropped: Mapping[messages.ShardId, int]) -> None:
        """Noted: so many."""
        ...

    async def dead_letters(
        self, shard: messages.ShardId, *, count: int = 100
    ) -> list[messages.DeadEntry]:
        """The newest dead letters of a shard, newest first."""
        ...
