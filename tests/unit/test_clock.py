"""The clocks of a machine that was suspended."""

from __future__ import annotations

import time

import pytest

from duepoint import clock as clocks
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


@pytest.mark.parametrize(
    ("part_us", "seconds"),
    [
        (0, 0.3),
        (299_999, 1e-6),
        (300_000, 0.0),
        (799_999, 0.0),
        (800_000, 0.5),
        (999_999, 0.300001),
    ],
)
def test_what_may_wait_begins_between_two_whole_seconds(part_us, seconds):
    assert clocks.seconds_to_lull(1_772_366_400_000_000 + part_us) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("part_us", "seconds", "sooner"),
    [
        (0, 0.0, 0.0),
        (0, 0.2, 0.2),  # it cannot begin sooner
        (0, 0.5, 0.5),
        (0, 2.0, 1.5),
        (100_000, 1.8, 1.3),
        (400_000, 2.0, 2.0),
        (799_999, 1.0, 1.0),
        (850_000, 0.5, 0.5),
    ],
)
def test_what_is_due_outside_a_lull_begins_in_the_one_before(part_us, seconds, sooner):
    now_us = 1_772_366_400_000_000 + part_us
    assert clocks.sooner_for_lull(now_us, seconds) == pytest.approx(sooner)
