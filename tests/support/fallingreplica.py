"""A scene: a replica that lags is promoted, with slots that its primary had run in between.

Whoever uses it cuts the replica off and kills the primary. The replica holds a retry and a chain
that are long due there, and that have run: neither may be handed out as a slot to run.
"""

from __future__ import annotations

import asyncio

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.schedules import points
from duepoint.schedules.points import PointKind
from tests.support.queueing import Harness, a_retry, moved
from tests.support.redisserver import RedisServer
from tests.support.waiting import LONGEST_SECONDS

_HOUR_SECONDS = 3600
_RETRY_SECONDS = 2.0


class Scene:
    """One schedule whose retry and whose chain run on the primary alone."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._ran: set[bytes] = set()
        self._chain: bytes = b""
        self.shard = messages.ShardId(0)

    async def arm(self) -> None:
        """A retry and a chain wait; the replica has them soon."""
        await self._harness.arm()
        claim = await self._harness.claim_one()
        (chain,) = claim.points
        self.shard, self._chain = claim.shard, chain.member
        due_us = self._harness.now_us() + int(_RETRY_SECONDS * 1e6)
        retry = a_retry(chain, due_us=due_us)
        settlement = messages.Settlement(
            chains=(points.chain(chain.schedule_id, chain.timing_version, due_us),),
            occurrences=(retry,),
        )
        await self._harness.queue.settlements.settle(claim, settlement)
        self._ran = {retry.point.member, chain.member}

    async def wait_until_copied(self, primary: RedisServer) -> None:
        """The replica of the primary has what was written so far."""
        with primary.client() as client:
            assert await asyncio.to_thread(client.execute_command, "WAIT", 1, 10_000) == 1

    async def run_on_the_primary(self) -> None:
        """Both run; what is told of it is lost with the primary."""
        left = set(self._ran)
        while left:
            claim = await self._harness.claim_one()
            left -= {point.member for point in claim.points}
            chains = [one for one in claim.points if one.kind is PointKind.CHAIN]
            settlement = messages.Settlement(
                finished=tuple(one.member for one in claim.points if one not in chains),
                chains=tuple(moved(one, _HOUR_SECONDS) for one in chains),
            )
            settled = await self._harness.queue.settlements.settle(claim, settlement)
            assert not settled.lost

    async def check_on_the_replica(self) -> None:
        """It is in doubt with the first claim: the retry waits, the chain is told since when."""
        claims = await self._claims()
        (suspect,) = [
            one
            for one in await self._harness.queue.suspect_points.shards()
            if one.shard == self.shard
        ]
        assert [one.member for claim in claims for one in claim.points] == [self._chain]
        assert [claim.back_us for claim in claims] == [suspect.back_us]
        held = [
            one
            async for part in self._harness.queue.suspect_points.held(self.shard)
            for one in part
        ]
        assert {one.point.member for one in held} == self._ran - {self._chain}
        # What is due later needs nobody.
        (claim,) = claims
        chain = claim.points[0]
        soon = points.chain(
            chain.schedule_id, chain.timing_version, self._harness.now_us() + 100_000
        )
        await self._harness.queue.settlements.settle(claim, messages.Settlement(chains=(soon,)))
        later = await self._harness.claim_one()
        assert [one.member for one in later.points] == [self._chain]
        assert later.points[0].due_us > later.back_us

    async def _claims(self) -> list[messages.Claim]:
        """What is handed out once the replica has been promoted."""
        async with asyncio.timeout(LONGEST_SECONDS):
            while True:
                try:
                    claims = await self._harness.claim_all()
                except errors.QueueUnavailable:
                    claims = []
                if claims:
                    return claims
                await asyncio.sleep(0.1)
