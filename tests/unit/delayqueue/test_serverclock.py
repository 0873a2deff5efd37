"""The age of a message: what it took longer than the quickest one."""

from __future__ import annotations

import pytest

from duepoint.delayqueue.wakeups import ServerClock
from tests.fakes.fakeclock import FakeClock

BEHIND_US = 90_000_000  # the server's wall clock has nothing to do with ours


@pytest.fixture
def clock():
    return FakeClock()


async def sent(clock: FakeClock, took_seconds: float) -> int:
    server_us = clock.now_us() - BEHIND_US
    await clock.advance(took_seconds)
    return server_us


async def test_a_slow_message_is_as_old_as_it_took_longer_than_the_quickest(clock):
    server = ServerClock(clock)
    assert server.age_seconds(await sent(clock, 0.001)) == 0
    assert server.age_seconds(await sent(clock, 0.009)) == pytest.approx(0.008, abs=1e-5)


async def test_a_measure_is_forgotten_so_that_drifting_clocks_do_no_harm(clock):
    server = ServerClock(clock)
    server.age_seconds(await sent(clock, 0.001))
    for _ in range(3):
        await clock.advance(31)
        server.age_seconds(await sent(clock, 0.004))
    assert server.age_seconds(await sent(clock, 0.004)) == pytest.approx(0, abs=1e-5)


async def test_a_server_set_back_an_hour_wakes_too_early_for_a_minute_and_never_too_late(clock):
    server = ServerClock(clock)
    server.age_seconds(await sent(clock, 0.001))
    stepped = await sent(clock, 0.001) - 3_600_000_000
    assert server.age_seconds(stepped) > 3000
    for _ in range(2):
        await clock.advance(31)
        server.age_seconds(await sent(clock, 0.001) - 3_600_000_000)
    assert server.age_seconds(await sent(clock, 0.001) - 3_600_000_000) < 0.001
