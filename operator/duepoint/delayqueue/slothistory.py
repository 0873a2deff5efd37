"""The last slots of each schedule, for people: read, and forgotten with what they are of.

A settlement writes them, in its own script, to a hash beside each bucket of definitions
(``scripts/includes/history.lua``, ``runs.past``); removing a definition removes them in the same
step. A settlement that comes behind the removal writes them once more: the sweep finds those. A
resharding does not carry them along: the new shards begin anew, and until a former shard is empty
both are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.delayqueue import index, messages, quotas, sharding
from duepoint.runs import past
from duepoint.runs.history import PastSlot
from duepoint.schedules import points


@dataclass(eq=False)
class SlotHistory:
    """The last slots of schedules and of members; the layout must have been read."""

    index: index.Index

    async def of(
        self, schedule_id: points.ScheduleId, *, of_member: bool = False
    ) -> tuple[PastSlot, ...]:
        """What is kept of its last slots, newest first; raises QueueUnavailable."""
        keys = [
            self.index.shard(shard).history_of(schedule_id, self.index.buckets, of_member=of_member)
            for shard in sharding.homes(schedule_id, self.index.known_layout())
        ]
        replies = await self.index.read(
            "read the last slots", *(("HGET", key, schedule_id) for key in keys)
        )
        # A value that moved later is older: the own shard comes first.
        return past.read(b"".join(reply for reply in reversed(replies) if reply))

    async def forget_gone(
        self,
        shard: messages.ShardId,
        populations: Iterable[str],
        first: int = 0,
        last: int | None = None,
    ) -> int:
        """What is kept of schedules without a definition goes, of these buckets; how many.

        Without a script: a schedule that is written between reading and removing begins anew.
        """
        names = self.index.shard(shard)
        buckets = [
            names.bucket(population, number)
            for population in populations
            for number in range(first, self.index.buckets if last is None else last)
        ]
        pairs = [
            (bucket, names.history_beside(bucket, of_member=of_member))
            for bucket in buckets
            for of_member in (False, True)
        ]
        found = await self.index.read_many("sweep last slots", [("HKEYS", key) for _, key in pairs])
        kept = [
            (bucket, key, ids)
            for (bucket, key), fields in zip(pairs, found, strict=True)
            if (ids := [field for field in fields if field])
        ]
        records = await self.index.read_many(
            "sweep last slots", [("HMGET", bucket, *ids) for bucket, _, ids in kept]
        )
        gone = [
            (key, ids, [i for i, record in zip(ids, of, strict=True) if record is None])
            for (_, key, ids), of in zip(kept, records, strict=True)
        ]
        for key, ids, some in gone:
            if len(some) == len(ids):
                await self.index.read("forget last slots", ("UNLINK", key))
            elif some:
                (values,) = await self.index.read("forget last slots", ("HMGET", key, *some))
                freed = sum(len(value) + quotas.HISTORY_OVERHEAD for value in values if value)
                forget = ("HDEL", key, *some), ("HINCRBY", key, "", -freed)
                await self.index.read("forget last slots", *forget)
        return sum(len(some) for _, _, some in gone)
