"""When unused blobs are looked for, in virtual time; what is removed is the queue's matter."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from prometheus_client import REGISTRY

from duepoint import errors
from duepoint.controller.maintenance.collector import EVERY_SECONDS, Collector
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import collector
from tests.fakes.fakeclock import FakeClock

STEPS = 5
STEP_SECONDS = 0.1


class Shards:
    """A queue of which each shard is looked at in so many steps."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.layouts = self.collector = self
        self.looked_at: list[tuple[int, float]] = []
        self.trouble: Exception | None = None

    def known(self):
        return messages.Layout(number=1, shards=2)

    async def collect(self, shard, epoch):
        assert epoch == 5
        for _ in range(STEPS):
            await self.clock.sleep(STEP_SECONDS)
            if self.trouble is not None:
                raise self.trouble
            self.looked_at.append((shard, self.clock.monotonic()))
            yield collector.Collected(removed=1)


@pytest.fixture
async def collecting():
    clock = FakeClock()
    shards = Shards(clock)
    collector = Collector(queue=shards, epoch=messages.Epoch(5), clock=clock)
    task = asyncio.create_task(collector.run())
    await clock.settle()
    yield clock, shards, task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, queue_errors.Fenced):
        await task


async def test_every_shard_is_looked_at_four_times_a_day_at_a_trickle(collecting):
    clock, shards, _ = collecting
    before = REGISTRY.get_sample_value("duepoint_blobs_removed_total")
    await clock.advance(EVERY_SECONDS - 1)
    assert shards.looked_at == []
    await clock.advance(2 * STEPS * STEP_SECONDS * 20 + 1)
    assert [shard for shard, _ in shards.looked_at] == [0] * STEPS + [1] * STEPS
    times = [at for _, at in shards.looked_at]
    assert times[1] - times[0] == pytest.approx(20 * STEP_SECONDS)
    assert REGISTRY.get_sample_value("duepoint_blobs_removed_total") == before + 2 * STEPS
    await clock.advance(86_400 + 300)
    assert len(shards.looked_at) == 5 * 2 * STEPS


async def test_a_queue_that_is_away_is_looked_at_next_time(collecting):
    clock, shards, _ = collecting
    shards.trouble = errors.QueueUnavailable("away")
    await clock.advance(EVERY_SECONDS + 1)
    shards.trouble = None
    await clock.advance(EVERY_SECONDS / 2)
    assert shards.looked_at == []
    await clock.advance(EVERY_SECONDS / 2 + 60)
    assert len(shards.looked_at) == 2 * STEPS


async def test_a_newer_leader_ends_it(collecting):
    clock, shards, task = collecting
    shards.trouble = queue_errors.Fenced("a newer leader has been here")
    await clock.advance(EVERY_SECONDS + 1)
    assert isinstance(task.exception(), queue_errors.Fenced)
