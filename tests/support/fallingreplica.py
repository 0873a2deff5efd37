"""A scene: a lagging replica is promoted after its primary has run further slots.

The test cuts the replica off and kills the primary. The replica still has a retry and a chain that
are long due there although they have run: a claim must return neither of them as a slot to run.
"""

from __future__ import annotations

import asyncio
import contextlib

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair.fallbacks import Doubt
from duepoint.schedules.points import PointKind
from tests.support.queueing import EPOCH, Harness, a_retry, moved
from tests.support.redisserver import RedisServer
from tests.support.waiting import LONGEST_SECONDS

_HOUR_SECONDS = 3600
_RETRY_SECONDS = 2.0


class Scene:
    """A schedule whose retry and chain run on the primary alone."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._ran: set[bytes] = set()
        self._chain: bytes = b""
        self.shard = messages.ShardId(0)

    async def arm(self) -> None:
        """Store a waiting retry and a chain, which the replica soon copies."""
        await self._harness.arm()
        claim = await self._harness.claim_one()
        (chain,) = claim.points
        self.shard, self._chain = claim.shard, chain.member
        due_us = self._harness.now_us() + int(_RETRY_SECONDS * 1e6)
        retry = a_retry(chain, due_us=due_us)
        settlement = messages.Settlement(
            chains=((chain.member, due_us),),
            occurrences=(retry,),
        )
        await self._harness.queue.settlements.settle(claim, settlement)
        self._ran = {retry.point.member, chain.member}

    async def wait_until_copied(self, primary: RedisServer) -> None:
        """Wait until the primary's replica has every write so far."""
        with primary.client() as client:
            assert await asyncio.to_thread(client.execute_command, "WAIT", 1, 10_000) == 1

    async def run_on_the_primary(self) -> None:
        """Run both; their settlements are lost with the primary."""
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
        """Check that it is in doubt at once, and that claims return only slots due since then."""
        fallbacks = self._harness.queue.fallbacks
        async with asyncio.timeout(LONGEST_SECONDS):
            doubt = await self._doubt()
        assert await self._harness.claim_all() == []
        assert [one async for one in fallbacks.overdue(doubt)] == [self._harness.definition()]
        # A Schedule that is put again with a later due time waits for nobody.
        one = self._harness.definition()
        await self._harness.queue.writer.remove(one.id, one.uid, one.namespace, EPOCH)
        await self._harness.arm(due_in=0.1)
        later = await self._harness.claim_one()
        assert [point.member for point in later.points] == [self._chain]

    async def _doubt(self) -> Doubt:
        """Return the doubt that a claim reports once the replica has been promoted."""
        while True:
            with contextlib.suppress(errors.QueueUnavailable):
                assert await self._harness.claim_all() == []
                for doubt in await self._harness.queue.fallbacks.doubts():
                    if doubt.shard == self.shard:
                        return doubt
            await asyncio.sleep(0.1)
