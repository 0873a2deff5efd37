"""The clocks of a machine that was suspended."""

from __future__ import annotations

import time

import pytest

from duepoint.clock import SystemClock
from tests.support.workplace import a_workplace
from tests.unit.worker.test_worker import every

SUSPENDED_SECONDS = 60.0


@pytest.fixture
def suspended(monkeypatch):
    """This machine was suspended for a minute: not every clock of it knows that."""
    now = {
        time.CLOCK_BOOTTIME: 1_000.0 + SUSPENDED_SECONDS,
        time.CLOCK_MONOTONIC: 1_000.0,
    }
    monkeypatch.setattr(time, "clock_gettime", now.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: now[time.CLOCK_MONOTONIC])


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no such clock")
def test_a_claim_does_not_outlive_the_minute_in_which_the_machine_was_suspended(suspended):
    held_until = 1_000.0 + 9.0  # claimed just before
    assert SystemClock().monotonic() > held_until


async def test_what_fell_due_while_the_machine_was_suspended_is_looked_at_after_a_beat():
    """Sleeps go on where they were, so whoever sleeps towards that due wakes a minute late."""
    place = await a_workplace()
    await place.arm(every("50s"))
    async with place.working(place.a_worker()):
        await place.clock.advance(15)
        await place.clock.suspend(SUSPENDED_SECONDS)
        await place.clock.advance(11)
    assert len(place.slots_fired()) == 1
