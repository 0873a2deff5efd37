"""All members of a set, page by page, in the order of the hashes of their ids.

Nothing is changed, and a page takes a bounded amount of work. While the index is resharded a walk
goes through the former shards first, so that it misses nothing and may meet a member twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import interning, lanes, signedblobs
from duepoint.delayqueue.members import cursors, lookups, values
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

#: Buckets of one script, most of them of some fifty members, and scripts of one page.
_BUCKETS_TOGETHER = 512
_STEPS = 16


class _Walked(msgspec.Struct, frozen=True, array_like=True):
    """How far a walk has come: whole shards, whole buckets of the next one, ids of the next."""

    layout: int
    shard: int
    bucket: int = 0
    after: bytes = b""


@dataclass(eq=False)
class MemberPages:
    """Walks through sets."""

    index: index.Index
    layouts: layouts.Layouts
    lanes: lanes.Lanes
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs
    lookups: lookups.MemberLookups

    async def page(
        self, set_: setrecord.SetRecord, cursor: str = "", *, limit: int, prefix: str = ""
    ) -> values.MemberPage:
        """Some members, shard by shard, in the order of the hashes of their ids.

        What does not change meanwhile comes once on a walk.
        Bounded work: there may be fewer than ``limit``, even none, and still more to come, which
        the cursor of the page says. Raises InvalidCursor.
        """
        owner = set_.identity
        at = cursors.parse(self.signed_blobs, owner, _Walked, cursor) if cursor else None
        layout = await cursors.layout_of(self.layouts, None if at is None else at.layout)
        members: list[values.StoredMember] = []
        next_at: _Walked | None = at or _Walked(layout.number, 0)
        for _ in range(_STEPS):
            if next_at is None or len(members) >= limit:
                break
            some, next_at = await self._step(
                owner, layout, next_at, limit=limit - len(members), prefix=prefix
            )
            members += some
        text = "" if next_at is None else cursors.text(self.signed_blobs, owner, next_at)
        return values.MemberPage(members=members, cursor=text)

    async def _step(
        self,
        owner: points.SetIdentity,
        layout: messages.Layout,
        at: _Walked,
        *,
        limit: int,
        prefix: str,
    ) -> tuple[list[values.StoredMember], _Walked | None]:
        """The members of some buckets, and where to go on; None = this was the end."""
        shards = sharding.all_shards(layout)
        if at.shard >= len(shards):
            return [], None
        shard = shards[at.shard]
        next_shard = _Walked(at.layout, at.shard + 1)
        of_shard = layout if sharding.layout_of(shard) == layout.number else layout.former
        assert of_shard is not None  # noqa: S101 - all_shards has no other ones
        buckets = buckets_of(self.index, owner, shard, of_shard.shards)
        chunk = buckets.some(at.bucket, _BUCKETS_TOGETHER)
        numbers = await self.lanes.within(of_shard, [shard], lanes.text_of(owner)) if chunk else {}
        if not numbers:
            return [], next_shard
        call = self.index.call("listmembers", shard, *chunk, most=limit + 1)
        call.put(prefix=prefix.encode())
        incarnation, looked_at, replies = await self.index.scripts.run(call)
        self.interned.see(shard, incarnation.decode())
        next_at = _Walked(at.layout, at.shard, at.bucket + looked_at)
        if next_at.bucket >= len(buckets):
            next_at = next_shard
        listed: list[tuple[points.ScheduleId, bytes]] = []
        for offset, reply in enumerate(replies):
            here = sorted(zip(reply[::2], reply[1::2], strict=True))
            if offset == 0:
                here = [each for each in here if each[0] > at.after]
            room = limit - len(listed)
            listed += here[:room]
            if len(here) > room:
                after = here[room - 1][0] if room else b""
                next_at = _Walked(at.layout, at.shard, at.bucket + offset, after)
                break
        found = await self.lookups.of_records(numbers, {shard: listed})
        kept = [one for one in found if one.id.startswith(prefix)]
        return kept, next_at


def buckets_of(
    index_: index.Index, owner: points.SetIdentity, shard: messages.ShardId, shards: int
) -> keys.SetBuckets:
    """Every bucket of a shard that may hold members of the set.

    Args:
        shards: of the layout to which the shard belongs.
    """
    populations = keys.set_populations(owner.uid, owner.spread, sharding.index_of(shard), shards)
    return keys.SetBuckets(index_.shard(shard), populations, index_.buckets)
