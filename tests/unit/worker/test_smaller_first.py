"""A burst and a single slot of the same second: the single slot does not wait for the burst."""

from __future__ import annotations

import asyncio
import itertools

from duepoint import clock
from duepoint.delayqueue import messages
from duepoint.worker import pipeline


class Claims:
    """Claims in progress, in the order in which their work begins."""

    def __init__(self) -> None:
        self.order = pipeline.SmallerFirst(clock.SystemClock())
        self.begun: list[str] = []
        self.shards = itertools.count(0, 4)

    async def carry_out(
        self, name: str, points: int, seconds: float = 0.0, shard: int | None = None
    ) -> None:
        # Each in another group of shards, so that no two hold the same namespaces.
        shard = next(self.shards) if shard is None else shard
        async with self.order.turn(messages.ShardId(shard), points):
            self.begun.append(name)
            await asyncio.sleep(seconds)


async def begun(*claims: tuple[str, int, float]) -> list[str]:
    running = Claims()
    await asyncio.gather(*(running.carry_out(*claim) for claim in claims))
    return running.begun


async def test_a_burst_begins_after_the_small_claims_that_came_with_it():
    order = await begun(("burst", 100, 0.0), ("one", 1, 0.001), ("few", 5, 0.001))
    assert order == ["one", "few", "burst"]


async def test_a_burst_waits_for_a_slow_delivery_a_moment_only():
    running = Claims()
    slow = asyncio.create_task(running.carry_out("slow", 1, 30.0))
    try:
        await asyncio.wait_for(running.carry_out("burst", 100), timeout=5)
        await asyncio.wait_for(running.carry_out("next burst", 100), timeout=5)
    finally:
        slow.cancel()
    assert running.begun == ["slow", "burst", "next burst"]


async def test_claims_of_like_size_wait_for_none():
    order = await begun(("a", 60, 0.0), ("b", 50, 0.0), ("c", 70, 0.0))
    assert sorted(order) == ["a", "b", "c"]
    running = Claims()
    holder = asyncio.create_task(running.carry_out("first", 60, 0.5))
    await asyncio.sleep(0)
    async with asyncio.timeout(0.2):
        await running.carry_out("second", 60)
    holder.cancel()


async def test_claims_of_the_same_namespaces_do_not_wait_for_each_other():
    running = Claims()
    holder = asyncio.create_task(running.carry_out("webhooks", 1, 30.0, shard=33))
    await asyncio.sleep(0)
    begun_at = asyncio.get_running_loop().time()
    await running.carry_out("jobs", 100, shard=35)
    assert asyncio.get_running_loop().time() - begun_at < pipeline.SMALLER_FIRST_SECONDS
    holder.cancel()


async def test_nothing_is_kept_of_claims_that_have_ended():
    running = Claims()
    for number in range(1_000):
        await running.carry_out(str(number), 1)
    assert running.order.known <= 1
