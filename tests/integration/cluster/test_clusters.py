"""The queue on a real cluster: every shard has its node, and may get another one."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from duepoint import errors
from duepoint.clock import SystemClock
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.wire import servers as clusters
from tests.support.queueing import moved
from tests.support.waiting import LONGEST_SECONDS

STEP = 0.05


def shard_slot(harness, shard):
    return clusters.slot_of(harness.server.shard(messages.ShardId(shard)).meta)


async def test_slots_move_under_load_and_nothing_is_lost_or_early_or_late_by_3_seconds(
    clustered, shared_cluster
):
    load = Load(clustered, schedules=24)
    await load.arm()
    working = asyncio.create_task(load.run(worker="w1"))
    helping = asyncio.create_task(load.run(worker="w2"))
    try:
        await load.wait_for_firings(200)
        for shard in (0, 3, 5):
            load.moving.add(shard)
            slot = shard_slot(clustered, shard)
            source = shared_cluster.owner(slot)
            target = shared_cluster.nodes[(shared_cluster.nodes.index(source) + 1) % 3]
            await asyncio.to_thread(shared_cluster.move_slot, slot, target, pause=0.01)
            await load.wait_for_firings(len(load.fired) + 100)
    finally:
        for task in (working, helping):
            task.cancel()
        await asyncio.gather(working, helping, return_exceptions=True)
    assert load.troubles == []
    assert load.early == []
    assert load.holes() == []
    assert load.longest_pause() < 3.0


async def test_a_whole_nodes_worth_of_slots_moves_by_the_servers_own_means(
    clustered, shared_cluster
):
    if shared_cluster.kind != "valkey":
        pytest.skip("only Valkey 9 moves slots by itself")
    load = Load(clustered, schedules=24)
    await load.arm()
    working = asyncio.create_task(load.run(worker="w1"))
    slot = shard_slot(clustered, 0)
    source = shared_cluster.owner(slot)
    target = next(node for node in shared_cluster.nodes if node is not source)
    load.moving.add(0)
    try:
        await load.wait_for_firings(50)
        shared_cluster.ask(
            source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot,
            "NODE", shared_cluster.id_of(target),
        )  # fmt: skip
        async with asyncio.timeout(LONGEST_SECONDS):
            while shared_cluster.owner(slot) is not target:  # noqa: ASYNC110 - the server's affair
                await asyncio.sleep(0.05)
        await load.wait_for_firings(len(load.fired) + 100)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert load.troubles == []
    assert load.holes() == []
    assert load.longest_pause() < 3.0


class Load:
    """Schedules that are due every 50 ms, claimed and moved on for as long as it runs."""

    def __init__(self, harness, *, schedules):
        self.harness = harness
        self.names = [f"s{number}" for number in range(schedules)]
        self.fired = []
        self.early = []
        self.troubles = []
        self.moving = set()
        self._more = asyncio.Event()

    async def arm(self):
        begin = self.harness.now_us() + 200_000
        for name in self.names:
            await self.harness.arm(name=name, namespace=f"ns-{name}", due_us=begin)

    async def run(self, *, worker):
        shards = await self.harness.shards()
        while True:
            try:
                await self._turn(shards, worker)
            except errors.QueueUnavailable:
                pass
            except errors.DuepointError as trouble:
                self.troubles.append(trouble)
            await asyncio.sleep(0.01)

    async def _turn(self, shards, worker):
        for answer in await self.harness.queue.claims.claim(
            shards, worker=worker, lease_seconds=1.0
        ):
            if answer.claim is None:
                continue
            for point in answer.claim.points:
                self.fired.append((point.schedule_id, point.due_us, time.monotonic()))
                if self.harness.now_us() < point.due_us:
                    self.early.append(point)
            chains = tuple(moved(point, STEP) for point in answer.claim.points)
            await self._settle(answer.claim, messages.Settlement(chains=chains))
            self._more.set()

    async def _settle(self, claim, settlement):
        """As the settler does it: for as long as the claim is held."""
        while SystemClock().monotonic() < claim.held_until:
            try:
                await self.harness.queue.settlements.settle(claim, settlement)
            except errors.QueueUnavailable:
                await asyncio.sleep(0.02)
            else:
                return

    async def wait_for_firings(self, count):
        async with asyncio.timeout(LONGEST_SECONDS):
            while len(self.fired) < count:
                self._more.clear()
                await self._more.wait()

    def holes(self):
        """Slots between the first and the last of each schedule that were never fired."""
        holes = []
        for _, group in itertools.groupby(sorted(self.fired), key=lambda one: one[0]):
            dues = sorted({due for _, due, _ in group})
            holes += [b - a for a, b in itertools.pairwise(dues) if b - a != int(STEP * 1e6)]
        return holes

    def longest_pause(self):
        """Longest silence of a schedule whose shard moved, beyond that of the others: what holds
        up the machine holds up all of them."""
        longest = {True: 0.0, False: 0.0}
        for schedule_id, group in itertools.groupby(sorted(self.fired), key=lambda one: one[0]):
            times = sorted(at for _, _, at in group)
            moved = sharding.shard_of(schedule_id, 8) in self.moving
            for a, b in itertools.pairwise(times):
                longest[moved] = max(longest[moved], b - a)
        return longest[True] - longest[False]
