"""A burst and a single slot of the same second: the single slot does not wait for the burst."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

from duepoint.delayqueue import messages
from duepoint.worker import claim_budget
from tests.fakes.fakeclock import FakeClock


class Claims:
    """Claims in progress, in the order in which their work begins; time passes by ``clock``."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock = FakeClock()
        self.order = claim_budget.SmallerFirst(self.clock)
        self.begun: list[str] = []
        self._group = group
        self._shards = itertools.count(0, 4)

    async def claim(self, *claims: tuple[str, int, float], shard: int | None = None) -> None:
        """Begin these, of so many points and with so many seconds of work, in one moment.

        Without ``shard``, each is in another group of shards, so no two hold the same namespaces.
        """
        for name, points, seconds in claims:
            place = next(self._shards) if shard is None else shard
            self._group.create_task(self._carry_out(name, points, seconds, place))
        await self.clock.settle()

    async def _carry_out(self, name: str, points: int, seconds: float, shard: int) -> None:
        async with self.order.turn(messages.ShardId(shard), points):
            self.begun.append(name)
            await self.clock.sleep(seconds)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Claims]:
    """Claims that all end within a minute of the test's clock."""
    async with asyncio.TaskGroup() as group:
        claims = Claims(group)
        yield claims
        await claims.clock.advance(60)


async def test_a_burst_begins_after_the_small_claims_that_came_with_it():
    async with running() as claims:
        await claims.claim(("burst", 100, 0.0), ("one", 1, 0.001), ("few", 5, 0.001))
        assert claims.begun == ["one", "few"]
        await claims.clock.advance(0.001)
        assert claims.begun == ["one", "few", "burst"]
