from __future__ import annotations

import asyncio

import pytest

from duepoint.clock import SystemClock
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


async def test_a_shard_that_was_returned_is_not_due_soon_and_another_is(quiet, clock):
    assert not quiet.is_due_within(3600.0)
    quiet.note(_answer(0, 1.0))
    assert not quiet.is_due_within(0.9)
    await clock.advance(0.5)
    assert quiet.is_due_within(0.6)
    await clock.advance(0.5)
    assert await quiet.wait_until_due(0) == (0,)
    assert not quiet.is_due_within(1.0)


async def test_a_wake_up_shortens_the_sleep(quiet, clock):
    quiet.note(_answer(0, 3600.0))
    sleeping = await _asleep(clock, quiet.wait_until_due(7200))
    quiet.wake(messages.ShardId(2), 1.0)
    await clock.advance(1.0)
    assert await sleeping == (2,)


async def test_a_wake_up_that_overtakes_an_answer_is_not_lost(quiet, clock):
    quiet.wake(messages.ShardId(0), 0.5)  # an insert after the claim, before its answer
    quiet.note(_answer(0, 3600.0))
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    await clock.advance(0.5)
    assert await sleeping == (0,)


async def test_an_empty_shard_sets_no_alarm(quiet, clock):
    quiet.note(_answer(0, None))
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    await clock.advance(60)
    assert await sleeping == ()


async def test_a_shard_with_more_is_due_at_once(quiet):
    quiet.note(_answer(1, 10.0, more=True))
    assert await quiet.wait_until_due(60) == (1,)


async def test_a_returned_shard_is_not_returned_again(quiet):
    quiet.wake(messages.ShardId(1), 0.0)
    assert await quiet.wait_until_due(60) == (1,)
    assert await quiet.wait_until_due(0) == ()


async def test_a_failed_look_is_repeated_after_the_wait(quiet, clock):
    quiet.look_again([messages.ShardId(2)], after_seconds=2.0)
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    await clock.advance(2.0)
    assert await sleeping == (2,)


async def test_what_is_long_due_waits_for_no_preferred_worker(quiet):
    """Points that somebody gave back: whoever was preferred has had his time."""
    quiet.standby = frozenset({messages.ShardId(1)})
    quiet.wake(messages.ShardId(1), -0.6)
    assert await quiet.wait_until_due(0) == (1,)


async def test_a_standby_shard_is_woken_after_the_preferred_worker(quiet, clock):
    quiet.standby = frozenset({messages.ShardId(1)})
    quiet.wake(messages.ShardId(1), 0.0)
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    await clock.advance(0.19)
    assert not sleeping.done()
    await clock.advance(0.32)
    assert await sleeping == (1,)


async def test_an_index_made_anew_is_looked_at_whole(quiet, clock):
    quiet.note_beat(_beat(clock, incarnation="first"))
    assert await quiet.wait_until_due(0) == ()
    quiet.note_beat(_beat(clock, incarnation="second"))
    assert await quiet.wait_until_due(0) == SHARDS


async def test_a_drifting_clock_is_not_a_step(quiet, clock):
    quiet.note_beat(_beat(clock))
    quiet.note_beat(_beat(clock, ahead_us=10_000))
    assert await quiet.wait_until_due(0) == ()


async def test_clocks_that_drift_apart_for_hours_are_noticed_before_they_are_far_apart(
    quiet, clock
):
    looks = []
    for beat in range(61):  # 3 ms more at each beat, 180 ms in all
        quiet.note_beat(_beat(clock, ahead_us=3_000 * beat))
        if await quiet.wait_until_due(0):
            looks.append(beat)
    assert looks == [17, 34, 51]


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


async def test_a_cancelled_sleeper_leaves_no_task_behind(quiet, clock):
    sleeping = await _asleep(clock, quiet.wait_until_due(60))
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert asyncio.all_tasks() == {asyncio.current_task()}


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


class CountingClock(SystemClock):
    """The real clock; notes the sleeps."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await super().sleep(seconds)


async def test_a_sleeper_is_awake_before_its_time_and_returns_no_earlier():
    clock = CountingClock()
    made = wakeups.Alarms(clock, SHARDS)
    await made.wait_until_due(0)
    at = clock.monotonic() + 0.05
    made.look_again(SHARDS, after_seconds=0.05)
    assert await made.wait_until_due(5) == SHARDS
    assert clock.monotonic() >= at
    assert max(clock.slept) < 0.05 - clock.timer_step_seconds / 2


async def test_alarms_close_to_one_another_are_slept_through():
    clock = CountingClock()
    made = wakeups.Alarms(clock, SHARDS)
    await made.wait_until_due(0)
    for _ in range(12):
        made.look_again(SHARDS, after_seconds=clock.timer_step_seconds / 2)
        clock.slept.clear()
        await made.wait_until_due(5)
    assert clock.slept, "it waited awake every time"


async def test_shards_that_are_due_within_a_timers_step_are_named_together():
    clock = SystemClock()
    made = wakeups.Alarms(clock, SHARDS)
    await made.wait_until_due(0)
    began = clock.monotonic()
    for place, shard in enumerate(SHARDS):
        made.look_again([shard], after_seconds=0.02 + place * clock.timer_step_seconds / 10)
    assert await made.wait_until_due(5) == SHARDS
    assert clock.monotonic() >= began + 0.02


async def test_what_is_due_is_named_at_the_end_of_the_time_given_though_more_will_come():
    clock = SystemClock()
    made = wakeups.Alarms(clock, SHARDS)
    await made.wait_until_due(0)
    made.look_again(SHARDS[:1])
    made.look_again(SHARDS[1:], after_seconds=clock.timer_step_seconds / 2)
    assert SHARDS[0] in await made.wait_until_due(0)


class SteppingClock(fakeclock.FakeClock):
    """One whose timers count in steps, as the event loop's do."""

    timer_step_seconds = 0.0015


async def test_a_shard_is_announced_shortly_before_it_is_due_and_stays_due():
    clock = SteppingClock()
    announced = []
    made = wakeups.Alarms(clock, SHARDS, announced.append)
    assert await made.wait_until_due(0) == SHARDS
    made.note(_answer(1, 30.0))
    sleeping = await _asleep(clock, made.wait_until_due(60))
    await clock.advance(29.9)
    assert announced == []
    await clock.advance(0.098)
    assert announced == [(1,)]
    await clock.advance(0.1)
    assert await asyncio.wait_for(sleeping, 30) == (1,)
    assert announced == [(1,)]


@pytest.mark.parametrize("waits", [(), (3600.0,)])
async def test_a_rest_in_which_nothing_is_due_announces_nothing(waits):
    clock = SteppingClock()
    announced = []
    made = wakeups.Alarms(clock, SHARDS, announced.append)
    assert await made.wait_until_due(0) == SHARDS
    for wait in waits:
        made.note(_answer(1, wait))
    for _ in range(3):
        sleeping = await _asleep(clock, made.wait_until_due(60))
        for passing in (59.0, 0.997, *(0.0005,) * 8):
            await clock.advance(passing)
        assert await asyncio.wait_for(sleeping, 30) == ()
    assert announced == []


async def test_of_shards_that_are_due_one_after_the_other_few_are_announced():
    clock = SteppingClock()
    announced = []
    made = wakeups.Alarms(clock, SHARDS, announced.append)
    assert await made.wait_until_due(0) == SHARDS
    for _ in range(50):
        made.note(_answer(1, 0.01))
        sleeping = asyncio.create_task(made.wait_until_due(60))
        for _ in range(12):
            await clock.advance(0.001)
        assert await asyncio.wait_for(sleeping, 30) == (1,)
    assert 1 <= len(announced) <= 12  # of 0.6 s: one in forty steps of 1.5 ms
