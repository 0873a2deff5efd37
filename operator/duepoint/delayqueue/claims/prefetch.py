"""Which schedules the next claim of a shard will probably bring.

Who moved a chain on knows when it is due again, who armed one in front of all others says so, and a
look at a shard names the next few members of its first set: the definitions that the next claim
will need are asked for in the claim's own round trip, behind it, which is as good as a read after
the claim and saves the second trip. Pure memory and only a guess: a schedule that was edited,
deleted or claimed by another worker costs one needless read; one that was not foreseen is read as
ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from duepoint.delayqueue import messages
from duepoint.schedules import points

#: Foreseen schedules of a shard. Beside a larger batch one round trip is nothing.
_MOST = 64


class Prefetch:
    """Expected dues by shard."""

    def __init__(self) -> None:
        self._dues: dict[messages.ShardId, dict[points.ScheduleId, int]] = {}

    def expect(self, shard: messages.ShardId, schedule_id: points.ScheduleId, due_us: int) -> None:
        """This schedule's chain is due then."""
        dues = self._dues.setdefault(shard, {})
        if len(dues) < _MOST or schedule_id in dues:
            dues[schedule_id] = due_us

    def known(self, shard: messages.ShardId, until_us: int) -> int:
        """How many are expected of a shard by then, as far as they are remembered."""
        return sum(due_us <= until_us for due_us in self._dues.get(shard, {}).values())

    def take(self, shard: messages.ShardId, until_us: int) -> dict[points.ScheduleId, int]:
        """Those that should be due by now, and when; expected no longer."""
        dues = self._dues.get(shard)
        if not dues:
            return {}
        taken = {schedule_id: due_us for schedule_id, due_us in dues.items() if due_us <= until_us}
        for schedule_id in taken:
            del dues[schedule_id]
        return taken

    def give_back(self, shard: messages.ShardId, taken: Mapping[points.ScheduleId, int]) -> None:
        """The claim came too early for these; what was learned since is newer."""
        for schedule_id, due_us in taken.items():
            if schedule_id not in self._dues.get(shard, {}):
                self.expect(shard, schedule_id, due_us)
