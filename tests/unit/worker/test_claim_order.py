"""A burst and a single slot of the same second: the single slot does not wait for the burst."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import chaincolumns
from duepoint.worker import claim_order
from tests.fakes.fakeclock import FakeClock


def a_claim(*counts: int) -> messages.Claim:
    """A claim with so many points of each namespace."""
    found: list[bytes | list[bytes | float]] = []
    for lane, count in enumerate(counts):
        members = [bytes([lane, number]) * 6 for number in range(count)]
        found += [b"%d" % lane, [part for member in members for part in (member, 1.0)]]
    chains = chaincolumns.from_lanes(found)
    assert chains is not None
    return messages.Claim(
        id=messages.ClaimId(b"c"),
        shard=messages.ShardId(0),
        points=chains,
        lanes=chaincolumns.LanesOfChains(found),
        reclaimed=0,
        now_us=1,
        token_us=1,
        held_until=1.0,
    )


def test_a_claim_counts_as_its_points_or_as_those_of_the_namespace_with_fewest():
    assert claim_order.weight(a_claim(100)) == 100
    assert claim_order.weight(a_claim(100, 3)) == 3
    assert claim_order.weight(a_claim(5, 3)) == 8  # a small claim


class Claims:
    """Claims in progress, in the order in which their work begins; time passes by ``clock``."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock = FakeClock()
        self.order = claim_order.SmallerFirst(self.clock)
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


async def test_a_burst_waits_for_a_slow_delivery_a_moment_only():
    async with running() as claims:
        await claims.claim(("slow", 1, 30.0), ("burst", 100, 0.0))
        await claims.clock.advance(claim_order.SMALLER_FIRST_SECONDS - 0.001)
        assert claims.begun == ["slow"]
        await claims.clock.advance(0.001)
        assert claims.begun == ["slow", "burst"]
        await claims.claim(("next burst", 100, 0.0))
        assert claims.begun == ["slow", "burst", "next burst"]


async def test_claims_of_like_size_wait_for_none():
    async with running() as claims:
        await claims.claim(("a", 60, 0.5), ("b", 50, 0.5), ("c", 70, 0.5))
        assert sorted(claims.begun) == ["a", "b", "c"]


async def test_claims_of_the_same_namespaces_do_not_wait_for_each_other():
    async with running() as claims:
        await claims.claim(("webhooks", 1, 30.0), shard=33)
        await claims.claim(("jobs", 100, 0.0), shard=35)
        assert claims.begun == ["webhooks", "jobs"]


async def test_nothing_is_kept_of_claims_that_have_ended():
    async with running() as claims:
        for number in range(1_000):
            await claims.claim((str(number), 1, 0.0))
        assert claims.order.known <= 1
