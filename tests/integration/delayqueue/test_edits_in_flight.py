"""Edits and deletions against workers that die, and many of everything at once."""

from __future__ import annotations

import asyncio
import random

from duepoint.delayqueue import messages
from tests.support import queueing
from tests.support.queueing import moved


async def test_a_timing_edit_before_a_crash_leaves_only_the_new_point(harness):
    await harness.arm(generation=1)
    await harness.claim_all(lease_seconds=0.02)
    await harness.arm(generation=2, due_in=-0.1)
    new = harness.definition(generation=2)
    claim = await harness.claim_one(worker="heir")
    assert [point.member for point in claim.points] == [new.id + new.timing_version]
    assert (await harness.total()).points == 1


async def test_another_edit_before_a_crash_leaves_the_point_and_its_due(harness):
    await harness.arm(generation=1)
    first = await harness.claim_one(lease_seconds=0.02)
    await harness.arm(generation=2, timing_generation=1, keep_chain=True)
    claim = await harness.claim_one(worker="heir")
    assert claim.points == first.points
    read = await harness.queue.definitions.read_definitions(
        claim.shard, [claim.points[0].schedule_id]
    )
    assert [stored.generation for stored in read.values()] == [2]


async def test_under_edits_deletions_and_dying_workers_every_schedule_keeps_one_chain(harness):
    storm = Storm(harness)
    await storm.arm_all()
    await asyncio.gather(storm.work("w1"), storm.work("w2"), storm.work("w3"), storm.edit())
    assert storm.settled > 100
    listed = {}
    for shard in await harness.shards():
        async for stored in queueing.stored(harness.queue, shard):
            listed[stored.name] = stored
    assert {name: stored.generation for name, stored in listed.items()} == storm.alive
    lost = [name for name, stored in listed.items() if not stored.claimed and not stored.due_us]
    assert lost == []
    chains = await _chains(harness)
    assert len(chains) == len(set(chains)) == len(storm.alive)
    assert await harness.rearm(1) == 0


class Storm:
    """Workers claim, settle, retry and die; an operator edits and deletes."""

    def __init__(self, harness):
        self.harness = harness
        self.alive: dict[str, int] = {}  # name -> generation
        self.settled = 0
        self._random = random.Random(20260301)
        self._over = asyncio.Event()

    async def arm_all(self):
        for number in range(60):
            await self.harness.arm(name=f"s{number}", due_in=-1.0)
            self.alive[f"s{number}"] = 1

    async def work(self, worker):
        while not self._over.is_set():
            for answer in await self.harness.look(worker=worker, batch=7, lease_seconds=0.05):
                if answer.claim and self._random.random() < 0.8:  # else it died with it
                    await self.settle(answer.claim)
            await asyncio.sleep(0.001)

    async def settle(self, claim):
        chains = [point for point in claim.points if not point.kind]
        failed = [point for point in chains if self._random.random() < 0.3]
        result = await self.harness.queue.settlements.settle(
            claim,
            messages.Settlement(
                chains=tuple(moved(point, 0.05) for point in chains),
                occurrences=tuple(queueing.a_retry(point) for point in failed),
                finished=tuple(point.member for point in claim.points if point.kind),
            ),
        )
        self.settled += result.applied

    async def edit(self):
        for _ in range(150):
            name = self._random.choice(sorted(self.alive))
            if self._random.random() < 0.2:
                stored = self.harness.definition(name=name)
                await self.harness.queue.writer.remove(
                    stored.id, stored.uid, "default", queueing.EPOCH
                )
                del self.alive[name]
            else:
                self.alive[name] += 1
                await self.harness.arm(name=name, generation=self.alive[name], due_in=-0.01)
            await asyncio.sleep(0.002)
        self._over.set()


async def _chains(harness):
    ids = []
    client = harness.server.redis
    for shard in await harness.shards():
        for lane in await harness.queue.definitions.namespaces(shard):
            members = await client.zrange(harness.server.shard(shard).lane(lane), 0, -1)
            ids += [member[:8] for member in members if len(member) == 12]
    return ids
