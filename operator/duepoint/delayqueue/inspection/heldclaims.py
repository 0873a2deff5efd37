"""Who holds what: the claims that have not ended, with the points still held under them.

One script that is marked ``no-writes`` reads the claims' records; which of their points are still
held is told by the points' scores, because a record says what a claim began with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.inspection import counts, upcoming, views
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

_CLAIMED = points.DUE_LIMIT_US


class HeldClaims:
    """Claims that have not ended."""

    def __init__(
        self,
        *,
        index: index.Index,
        counts: counts.Counts,
        upcoming: upcoming.Upcoming,
    ) -> None:
        self._index = index
        self._counts = counts
        self._upcoming = upcoming

    async def all(self, *, per_shard: int = 1_000) -> AsyncIterator[views.LeaseSight]:
        """Claims that have not ended, those that run out first first.

        Their points are read as they are asked for; a claim that ended meanwhile is left out.
        """
        found = await self._counts.of_each_shard(
            lambda shard: self._claims_of_shard(shard, per_shard)
        )
        claims = [(shard, now, claim) for shard, now, claims in found for claim in claims]
        for shard, now, claim in sorted(claims, key=lambda each: float(each[2][1])):
            lease = await self._lease(shard, now, claim)
            if lease.points:
                yield lease

    async def _claims_of_shard(
        self, shard: messages.ShardId, count: int
    ) -> tuple[messages.ShardId, int, list[Any]]:
        names = self._index.shard(shard)
        arguments = scripting.Arguments(layout=sharding.layout_of(shard), count=count)
        now, *found = await self._index.scripts.run(
            arguments.call("leases", [names.meta, names.claims, names.leases])
        )
        return shard, int(now), found

    async def _lease(
        self, shard: messages.ShardId, now_us: int, claim: list[Any]
    ) -> views.LeaseSight:
        claim_id, expiry, worker, attempts, by_lane = claim
        until = int(counts.finite(expiry))
        band = _CLAIMED + until
        names = self._index.shard(shard)
        lanes = [int(lane) for lane in by_lane[::2]]
        dues = {
            member: int(counts.finite(due))
            for found in by_lane[1::2]
            for member, due in zip(found[::2], found[1::2], strict=True)
        }
        held = await self._counts.read_all(
            "look at a claim",
            [("ZRANGE", names.lane(lane), band, band, "BYSCORE") for lane in lanes],
        )
        members = [
            (lane, member, dues.get(member, _own_due(member)))
            for lane, found in zip(lanes, held, strict=True)
            for member in found
        ]
        described = [sight for _, sight in await self._upcoming.describe(shard, members)]
        return views.LeaseSight(
            shard=shard,
            id=messages.ClaimId(claim_id),
            worker=worker.decode(errors="replace"),
            until_us=until,
            reclaimed=attempts,
            points=tuple(sorted(described, key=lambda sight: sight.due_us or 0)),
            now_us=now_us,
        )


def _own_due(member: bytes) -> int:
    """Of a slot that was added to a claim: it is due at its slot."""
    point = points.parse_member(member, 0)
    return 0 if point is None else point.slot_us
