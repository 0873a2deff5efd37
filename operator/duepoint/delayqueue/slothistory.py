"""The last slots of each schedule, for people: read, and forgotten with what they are of.

A settlement writes them, in its own script, to a hash beside each bucket of definitions
(``scripts/includes/history.lua``, ``runs.history``); removing a definition removes them in the same
step. A settlement that comes behind the removal writes them once more: the sweep finds those. Where
none are kept, the first sweep of a process removes what was kept before, and later ones ask for
nothing. A resharding does not carry them along: the new shards begin anew, and until a former shard
is empty both are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from duepoint.delayqueue import index, messages, quotas, sharding
from duepoint.runs import history
from duepoint.runs.history import PastSlot
from duepoint.schedules import points

#: Schedules that one call of the script looks at: less than 1 ms of the server's time.
_IDS_TOGETHER = 250


@dataclass(eq=False)
class SlotHistory:
    """The last slots of schedules and of members; the layout must have been read."""

    index: index.Index
    quotas: quotas.Quotas
    _emptied: set[tuple[object, ...]] = field(default_factory=set)

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
        return history.read(b"".join(reply for reply in reversed(replies) if reply))

    async def sweep(self, shard: messages.ShardId, buckets: Iterable[str]) -> None:
        """What is kept of schedules without a definition goes, of these buckets.

        Where no last slots are kept, all of them go, once.
        """
        names = self.index.shard(shard)
        pairs = [
            (bucket, names.history_beside(bucket, of_member=of_member))
            for bucket in buckets
            for of_member in (False, True)
        ]
        if self.quotas.history:
            await self._forget_gone(shard, pairs)
        elif pairs and (step := (shard, pairs[0], pairs[-1])) not in self._emptied:
            keys = [("UNLINK", key) for _, key in pairs]
            await self.index.read_many("forget last slots", keys)
            self._emptied.add(step)

    async def _forget_gone(self, shard: messages.ShardId, pairs: list[tuple[str, str]]) -> None:
        bucket_of = {key: bucket for bucket, key in pairs}
        there = await self.index.existing("sweep last slots", list(bucket_of))
        found = await self.index.read_many("sweep last slots", [("HKEYS", key) for key in there])
        kept = [
            (bucket_of[key], key, ids)
            for key, fields in zip(there, found, strict=True)
            if (ids := [field for field in fields if field])
        ]
        records = await self.index.read_many(
            "sweep last slots", [("HMGET", bucket, *ids) for bucket, _, ids in kept]
        )
        for (bucket, key, ids), of in zip(kept, records, strict=True):
            gone = [id_ for id_, record in zip(ids, of, strict=True) if record is None]
            for some in _parts(gone):  # the script looks again: one may have come back meanwhile
                call = self.index.call("forgethistory", shard, bucket, key)
                first, last = call.run(some)
                call.put(first=first, last=last)
                await self.index.scripts.run(call)


def _parts(ids: list[bytes]) -> Iterator[list[bytes]]:
    for first in range(0, len(ids), _IDS_TOGETHER):
        yield ids[first : first + _IDS_TOGETHER]
