"""Sweeps and the search for unused texts: in order, at a trickle, and fast after a doubt."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from prometheus_client import REGISTRY

from duepoint import errors
from duepoint.controller.maintenance.sweeper import (
    EVERY_SECONDS,
    ROLL_SECONDS,
    SweepRounds,
    UnusedBlobs,
)
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import collector, mending
from tests.fakes.fakeclock import FakeClock
from tests.support.terms import a_term

SHARDS = 8
STEPS = 10
STEP_SECONDS = 0.1


class Steps:
    """A queue of which each shard is swept in so many steps, each taking its time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.layouts = self.sweeper = self
        self.taken: list[tuple[int, float]] = []
        self.epochs: set[int] = set()
        self.trouble: Exception | None = None
        self.damaged: dict[int, Exception] = {}
        self.swept = mending.Swept(cursor=None)

    def known(self):
        return messages.Layout(number=1, shards=SHARDS)

    async def sweep(self, shard, cursor, epoch, *, due_of):
        await self.clock.sleep(STEP_SECONDS)
        if self.trouble is not None:
            raise self.trouble
        if shard in self.damaged:
            raise self.damaged[shard]
        self.taken.append((shard, self.clock.monotonic()))
        self.epochs.add(epoch)
        number = int(cursor or 0) + 1
        return mending.Swept(
            cursor=None if number == STEPS else str(number), armed=1, dropped=2, mended=3
        )


@pytest.fixture
async def sweeping():
    clock = FakeClock()
    steps = Steps(clock)
    term = a_term(clock, queue=steps, epoch=messages.Epoch(5))
    sweeper = SweepRounds(term, watermark_us=lambda _: 0)
    task = asyncio.create_task(sweeper.run())
    await clock.settle()
    yield clock, steps, sweeper, task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, queue_errors.Fenced):
        await task


def sample(name, **labels):
    return REGISTRY.get_sample_value(name, labels)


async def test_nothing_is_swept_before_the_objects_were_compared(sweeping):
    clock, steps, _, _ = sweeping
    await clock.advance(10 * ROLL_SECONDS)
    assert steps.taken == []


async def test_a_rolling_round_takes_a_twentieth_of_the_time(sweeping):
    clock, steps, sweeper, _ = sweeping
    sweeper.request()
    busy = SHARDS * STEPS * STEP_SECONDS
    await clock.advance(20 * busy + 1)
    assert sweeper.sweeps == 1
    first, last = steps.taken[0][1], steps.taken[-1][1]
    assert last - first == pytest.approx(20 * busy - 20 * STEP_SECONDS, rel=0.01)


async def test_rounds_roll_without_being_asked_for(sweeping):
    clock, _, sweeper, _ = sweeping
    sweeper.request()
    took = 20 * SHARDS * STEPS * STEP_SECONDS
    await clock.advance(took + 1)
    before = sample("duepoint_sweeps_total", pace="rolling")
    await clock.advance(3 * (took + ROLL_SECONDS))
    assert sweeper.sweeps == 4
    assert sample("duepoint_sweeps_total", pace="rolling") == before + 3


async def test_between_rounds_nothing_is_asked(sweeping):
    clock, steps, sweeper, _ = sweeping
    sweeper.request()
    await clock.advance(20 * SHARDS * STEPS * STEP_SECONDS + 1)
    taken = len(steps.taken)
    await clock.advance(ROLL_SECONDS / 2)
    assert len(steps.taken) == taken


async def test_after_a_doubt_the_next_round_is_made_at_full_speed(sweeping):
    clock, steps, sweeper, _ = sweeping
    sweeper.suspect()
    sweeper.request()
    fast = sample("duepoint_sweeps_total", pace="fast") or 0
    await clock.advance(SHARDS * STEPS * STEP_SECONDS / 4 + 0.1)
    assert sweeper.sweeps == 1
    assert len(steps.taken) == SHARDS * STEPS
    assert sample("duepoint_sweeps_total", pace="fast") == fast + 1
    sweeper.request()
    await clock.advance(SHARDS * STEPS * STEP_SECONDS)
    assert sweeper.sweeps == 1, "the doubt is gone: the round after it trickles"


async def test_a_doubt_breaks_a_rolling_round_off_and_waits_for_the_comparison(sweeping):
    clock, steps, sweeper, _ = sweeping
    sweeper.request()
    await clock.advance(30)
    sweeper.suspect()
    await clock.advance(30)
    taken = len(steps.taken)
    await clock.advance(60)
    assert (len(steps.taken), sweeper.sweeps) == (taken, 0)
    sweeper.request()
    await clock.advance(SHARDS * STEPS * STEP_SECONDS / 4 + 0.1)
    assert sweeper.sweeps == 1
    assert len(steps.taken) - taken == SHARDS * STEPS


async def test_a_queue_that_is_away_is_asked_again_and_no_step_is_left_out(sweeping):
    clock, steps, sweeper, _ = sweeping
    sweeper.suspect()
    sweeper.request()
    steps.trouble = errors.QueueUnavailable("away")
    await clock.advance(60)
    assert steps.taken == []
    steps.trouble = None
    await clock.advance(60)
    assert sweeper.sweeps == 1
    assert len(steps.taken) == SHARDS * STEPS


@pytest.mark.parametrize("damage", [queue_errors.Damaged("a list"), errors.Bug("what is this")])
async def test_a_damaged_shard_is_left_out_and_the_others_are_swept(sweeping, damage):
    clock, steps, sweeper, _ = sweeping
    steps.damaged[3] = damage
    sweeper.request()
    await clock.advance(20 * SHARDS * STEPS * STEP_SECONDS + 1)
    assert sweeper.sweeps == 1
    assert {shard for shard, _ in steps.taken} == set(range(SHARDS)) - {3}


async def test_who_looks_after_the_index_can_tell_that_a_shard_is_away(sweeping):
    clock, steps, sweeper, _ = sweeping
    steps.damaged[0] = queue_errors.Uninitialised("this shard holds no index")
    sweeper.request()
    await clock.advance(60)
    assert sweeper.outages > 0


async def test_a_newer_leader_ends_the_sweep(sweeping):
    clock, steps, sweeper, task = sweeping
    steps.trouble = queue_errors.Fenced("a newer leader has been here")
    sweeper.request()
    await clock.advance(1)
    assert isinstance(task.exception(), queue_errors.Fenced)


async def test_every_step_carries_the_term_and_what_it_mended_is_counted(sweeping):
    clock, steps, sweeper, _ = sweeping
    kinds = {"armed": 1, "dropped": 2, "mended": 3}
    before = {kind: sample("duepoint_sweep_repairs_total", kind=kind) or 0 for kind in kinds}
    sweeper.suspect()
    sweeper.request()
    await clock.advance(60)
    assert steps.epochs == {5}
    for kind, each in kinds.items():
        counted = sample("duepoint_sweep_repairs_total", kind=kind) - before[kind]
        assert counted == each * SHARDS * STEPS


BLOB_STEPS = 5


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
        for _ in range(BLOB_STEPS):
            await self.clock.sleep(STEP_SECONDS)
            if self.trouble is not None:
                raise self.trouble
            self.looked_at.append((shard, self.clock.monotonic()))
            yield collector.Collected(removed=1)


@pytest.fixture
async def collecting():
    clock = FakeClock()
    shards = Shards(clock)
    collector = UnusedBlobs(a_term(clock, queue=shards, epoch=messages.Epoch(5)))
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
    await clock.advance(2 * BLOB_STEPS * STEP_SECONDS * 20 + 1)
    assert [shard for shard, _ in shards.looked_at] == [0] * BLOB_STEPS + [1] * BLOB_STEPS
    times = [at for _, at in shards.looked_at]
    assert times[1] - times[0] == pytest.approx(20 * STEP_SECONDS)
    assert REGISTRY.get_sample_value("duepoint_blobs_removed_total") == before + 2 * BLOB_STEPS
    await clock.advance(86_400 + 300)
    assert len(shards.looked_at) == 5 * 2 * BLOB_STEPS


async def test_a_queue_that_is_away_is_looked_at_next_time(collecting):
    clock, shards, _ = collecting
    shards.trouble = errors.QueueUnavailable("away")
    await clock.advance(EVERY_SECONDS + 1)
    shards.trouble = None
    await clock.advance(EVERY_SECONDS / 2)
    assert shards.looked_at == []
    await clock.advance(EVERY_SECONDS / 2 + 60)
    assert len(shards.looked_at) == 2 * BLOB_STEPS


async def test_a_newer_leader_ends_it(collecting):
    clock, shards, task = collecting
    shards.trouble = queue_errors.Fenced("a newer leader has been here")
    await clock.advance(EVERY_SECONDS + 1)
    assert isinstance(task.exception(), queue_errors.Fenced)
