"""Which schedules the next claim of a shard will probably bring, and how many.

Who moved a chain on knows when it is due again, who armed one in front of all others says so, and a
look at a shard names the next few members of its first set: the definitions that the next claim
will need are asked for in the claim's own round trip, behind it, which is as good as a read after
the claim and saves the second trip. Of many that are due together the number alone is remembered:
it says how much to ask for, and their definitions are read by column, which costs a third. Pure
memory and only a guess: a schedule that was edited, deleted or claimed by another worker costs one
needless read; one that was not foreseen is read as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from duepoint.delayqueue import messages
from duepoint.schedules import points

#: Schedules whose definitions are read with their claim; of more the number is remembered.
FEW = 8
#: Foreseen schedules of a shard, and dues of which numbers are remembered.
_MOST = 64


class Expected(NamedTuple):
    """What a shard should give by now: dues by schedule, and how many points by other dues."""

    dues: Mapping[points.ScheduleId, int] = {}
    counts: Mapping[int, int] = {}

    @property
    def few(self) -> Mapping[points.ScheduleId, int]:
        """The schedules whose definitions are worth reading with the claim."""
        return {} if self.counts or len(self.dues) > FEW else self.dues


class Prefetch:
    """Expected dues by shard."""

    def __init__(self) -> None:
        self._dues: dict[messages.ShardId, dict[points.ScheduleId, int]] = {}
        self._counts: dict[messages.ShardId, dict[int, int]] = {}

    def expect(self, shard: messages.ShardId, schedule_id: points.ScheduleId, due_us: int) -> None:
        """This schedule's chain is due then."""
        dues = self._dues.setdefault(shard, {})
        if len(dues) < _MOST or schedule_id in dues:
            dues[schedule_id] = due_us

    def expect_many(self, shard: messages.ShardId, due_us: int, count: int) -> None:
        """So many chains are due then."""
        counts = self._counts.setdefault(shard, {})
        if len(counts) < _MOST or due_us in counts:
            counts[due_us] = counts.get(due_us, 0) + count

    def known(self, shard: messages.ShardId, until_us: int) -> int:
        """How many are expected of a shard by then, as far as they are remembered."""
        alone = sum(due_us <= until_us for due_us in self._dues.get(shard, {}).values())
        counts = self._counts.get(shard)
        if not counts:
            return alone
        return alone + sum(count for due_us, count in counts.items() if due_us <= until_us)

    def take(self, shard: messages.ShardId, until_us: int) -> Expected:
        """What should be due by now; expected no longer."""
        dues, counts = self._dues.get(shard, {}), self._counts.get(shard, {})
        ids = [schedule_id for schedule_id, due_us in dues.items() if due_us <= until_us]
        instants = [due_us for due_us in counts if due_us <= until_us]
        return Expected(
            {schedule_id: dues.pop(schedule_id) for schedule_id in ids},
            {due_us: counts.pop(due_us) for due_us in instants},
        )

    def give_back(self, shard: messages.ShardId, taken: Expected) -> None:
        """The claim came too early for these; what was learned since is newer."""
        for schedule_id, due_us in taken.dues.items():
            if schedule_id not in self._dues.get(shard, {}):
                self.expect(shard, schedule_id, due_us)
        for due_us, count in taken.counts.items():
            self.expect_many(shard, due_us, count)
