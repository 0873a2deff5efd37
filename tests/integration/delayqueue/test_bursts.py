"""What a burst costs: nothing of a claim is read twice, and its points stay columns."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import clock as clocks
from duepoint import services
from duepoint.delayqueue.claims import chaincolumns
from duepoint.schedules import actions
from duepoint.targets import target
from duepoint.targets.stream import target as streamtarget
from duepoint.worker import claim_budget, claimer, firing
from tests.support import builders, queueing

TICKS = actions.encode(actions.Action(target=actions.StreamAction(name="ticks")))
COUNT = 400
HOUR_US = 3_600_000_000


@pytest.fixture
async def harness(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    yield made
    await made.close()


class Costs:
    """Definitions that are read, points that are built, and points that are fired together."""

    def __init__(self, queue, monkeypatch):
        self.definitions = self.together = self.points = 0
        self._read = queue.definitions.read_definitions
        monkeypatch.setattr(queue.definitions, "read_definitions", self._note)
        self._chain_of = chaincolumns.chain_of
        monkeypatch.setattr(chaincolumns, "chain_of", self._note_point)
        ended_together = claim_budget.Holding.ended_together

        def count(holding, points):
            self.together += points
            ended_together(holding, points)

        monkeypatch.setattr(claim_budget.Holding, "ended_together", count)

    def _note_point(self, member, due_us):
        self.points += 1
        return self._chain_of(member, due_us)

    async def _note(self, shard, ids):
        ids = set(ids)
        self.definitions += len(ids)
        return await self._read(shard, ids)


def a_worker(queue):
    clock = clocks.SystemClock()
    streams = streamtarget.StreamTarget(clock)
    bounds = firing.Bounds(concurrency=64, lease_seconds=30.0)
    kinds = target.Targets(job=streams, webhook=streams, stream=streams)
    work = firing.Firer(queue=queue, target=kinds, clock=clock, bounds=bounds)
    limits = claimer.Limits(batch=500, under_way=1000, lease_seconds=30.0, grace_seconds=5.0)
    return claimer.Claimer(queue, work, clock, services.Health(), worker="one", limits=limits)


async def arm(queue, count):
    due_us = clocks.SystemClock().now_us() // HOUR_US * HOUR_US
    for number in range(count):
        known = builders.a_definition(
            "@every 1h",
            uid=f"6f1c9a34-0000-4000-8000-{number:012}",
            name=f"s-{number}",
            created_us=due_us - HOUR_US,
            not_before_us=due_us - HOUR_US,
            target=queue.signed_blobs.digest("default", TICKS),
        )
        arming = queueing.messages.Arming(definition=known, due_us=due_us)
        await queue.writer.upsert([(arming, TICKS)], queueing.EPOCH)


async def test_a_burst_is_fired_from_the_columns_of_its_claim(harness, monkeypatch):
    queue, server = harness.queue, harness.server
    await arm(queue, COUNT)
    costs = Costs(queue, monkeypatch)
    worker = a_worker(queue)
    running = asyncio.create_task(worker.run())
    key = server.keys.stream("default", "ticks")
    async with asyncio.timeout(30):
        while await server.redis.xlen(key) < COUNT:  # noqa: ASYNC110 - the server announces nothing
            await asyncio.sleep(0.02)
    worker.drain()
    await running
    assert await server.redis.xlen(key) == COUNT
    assert (costs.together, costs.definitions, costs.points) == (COUNT, 0, 0)
