from __future__ import annotations

import asyncio

import pytest

from duepoint.delayqueue import messages, wakeups
from tests.fakes import fakeclock

SHARDS = tuple(messages.ShardId(number) for number in range(3))


@pytest.fixture
def clock():
    return fakeclock.FakeClock()


@pytest.fixture
async def quiet(clock):
    """Alarms whose shards have all been looked at."""
    made = wakeups.Alarms(clock, SHARDS)
    assert await made.wait_until_due(0) == SHARDS
    return made


def _answer(shard, wait, *, more=False):
    return messages.Claimed(shard=messages.ShardId(shard), claim=None, wait_seconds=wait, more=more)


async def _asleep(clock, awaitable):
    task = asyncio.create_task(awaitable)
    await clock.settle()
    assert not task.done()
    return task


async def test_the_sleeper_wakes_exactly_at_the_earliest_due(quiet, clock):
    quiet.note(_answer(0, 30.0))
    quiet.note(_answer(1, 12.5))
    begin = clock.monotonic()
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    await clock.advance(12.499_999)
    assert not sleeping.done()
    await clock.advance(0.000_001)
    assert await sleeping == (1,)
    assert clock.monotonic() - begin == pytest.approx(12.5)


async def test_a_wake_up_that_overtakes_an_answer_is_not_lost(quiet, clock):
    quiet.wake(messages.ShardId(0), 0.5)  # an insert after the claim, before its answer
    quiet.note(_answer(0, 3600.0))
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    await clock.advance(0.5)
    assert await sleeping == (0,)


async def test_a_standby_shard_is_woken_after_the_preferred_worker(quiet, clock):
    quiet.standby = frozenset({messages.ShardId(1)})
    quiet.wake(messages.ShardId(1), 0.0)
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    await clock.advance(0.19)
    assert not sleeping.done()
    await clock.advance(0.32)
    assert await sleeping == (1,)


async def test_a_worker_whose_clock_is_put_right_does_not_sleep_on_for_as_long_as_it_was_behind():
    clock = SetClock()
    clock.ahead_us = -3_600_000_000
    made = wakeups.Alarms(clock, SHARDS)
    assert await made.wait_until_due(0) == SHARDS
    made.note(_answer(1, 3600.0))  # due now, but not by this machine's clock
    for _ in range(3):
        made.note_beat(_beat(clock, ahead_us=-clock.ahead_us))
        assert await made.wait_until_due(0) == ()
        await clock.advance(10)
    clock.ahead_us = 0
    made.note_beat(_beat(clock))
    assert set(await made.wait_until_due(0)) == set(SHARDS)


def _beat(clock, *, incarnation="one", ahead_us=0):
    return messages.Beat(
        workers=("w",),
        layout=messages.Layout(number=1, shards=3),
        incarnation=incarnation,
        time_us=clock.now_us() + ahead_us,
    )


class SetClock(fakeclock.FakeClock):
    """One whose UTC somebody sets; the monotonic clock knows nothing of it."""

    ahead_us = 0

    def now_us(self):
        return super().now_us() + self.ahead_us
