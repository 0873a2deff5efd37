"""Walks over the index: in order, at a trickle, every hour, and after a suspicion."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from duepoint import errors
from duepoint.controller.maintenance.sweeper import EVERY_SECONDS, Sweeps
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import sweeper
from tests.fakes.fakeclock import FakeClock
from tests.support.terms import a_term

SHARDS = 8
STEPS = 10
STEP_SECONDS = 0.1
#: A twentieth of the time is spent on a walk.
WALK_SECONDS = 20 * SHARDS * STEPS * STEP_SECONDS + 1


class Steps:
    """A queue of which each shard is walked over in so many steps, each taking its time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.layouts = self.sweeper = self
        self.taken: list[tuple[int, float]] = []
        self.epochs: set[int] = set()
        self.trouble: Exception | None = None
        self.damaged: dict[int, Exception] = {}

    def known(self):
        return messages.Layout(number=1, shards=SHARDS)

    async def sweep(self, shard, epoch, *, due_of):
        for _ in range(STEPS):
            await self.clock.sleep(STEP_SECONDS)
            if self.trouble is not None:
                raise self.trouble
            if shard in self.damaged:
                raise self.damaged[shard]
            self.taken.append((shard, self.clock.monotonic()))
            self.epochs.add(epoch)
            yield sweeper.Swept(armed=2, removed=sweeper.Removed(blobs=3))


@pytest.fixture
async def sweeping():
    clock = FakeClock()
    steps = Steps(clock)
    term = a_term(clock, queue=steps, epoch=messages.Epoch(5))
    sweeps = Sweeps(term, watermark_us=lambda _: 0)
    task = asyncio.create_task(sweeps.run())
    await clock.settle()
    yield clock, steps, sweeps, task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, queue_errors.Fenced):
        await task


async def test_nothing_is_swept_before_the_objects_were_compared(sweeping):
    clock, steps, sweeps, _ = sweeping
    await clock.advance(10 * EVERY_SECONDS)
    assert steps.taken == []
    sweeps.compared()
    await clock.advance(WALK_SECONDS)
    assert sweeps.sweeps == 1


async def test_there_is_a_walk_every_hour_and_nothing_is_asked_in_between(sweeping):
    clock, steps, sweeps, _ = sweeping
    sweeps.compared()
    await clock.advance(WALK_SECONDS)
    taken = len(steps.taken)
    sweeps.compared()  # again after ten minutes, as ever
    await clock.advance(EVERY_SECONDS - WALK_SECONDS)
    assert len(steps.taken) == taken
    await clock.advance(3 * (WALK_SECONDS + EVERY_SECONDS))
    assert sweeps.sweeps == 4


async def test_a_shard_that_is_away_is_tried_until_it_is_there(sweeping):
    clock, steps, sweeps, _ = sweeping
    sweeps.compared()
    steps.trouble = errors.QueueUnavailable("away")
    await clock.advance(60)
    assert (steps.taken, sweeps.outages > 0) == ([], True)
    steps.trouble = None
    await clock.advance(WALK_SECONDS + 10)
    assert sweeps.sweeps == 1
    assert len(steps.taken) == SHARDS * STEPS


@pytest.mark.parametrize("damage", [queue_errors.Damaged("a list"), errors.Bug("what is this")])
async def test_a_damaged_shard_is_left_out_and_the_others_are_swept(sweeping, damage):
    clock, steps, sweeps, _ = sweeping
    steps.damaged[3] = damage
    sweeps.compared()
    await clock.advance(WALK_SECONDS)
    assert sweeps.sweeps == 1
    assert {shard for shard, _ in steps.taken} == set(range(SHARDS)) - {3}
