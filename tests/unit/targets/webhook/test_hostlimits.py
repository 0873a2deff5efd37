"""Turns of one receiver: who gets one, who waits, who is put off, and who is never kept waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

from duepoint import clock, shares
from duepoint.targets.webhook import admission


def limits(per_host=2, places=256):
    return admission.HostLimits(clock.SystemClock(), per_host=per_host, places=places)


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is put off soon; for tests in which it does not matter how soon."""
    monkeypatch.setattr(shares, "PATIENCE_SECONDS", 0.01)


async def enter(given, host="host", namespace="team", times=1):
    return [await given.enter(host, namespace) for _ in range(times)]


async def test_at_one_that_hangs_nobody_waits_long_and_later_ones_not_at_all():
    given = limits(per_host=1)
    await enter(given)
    await asyncio.gather(*(given.enter("host", "team") for _ in range(5)))
    begun = time.monotonic()
    put_off = [await given.enter("host", "team") for _ in range(5)]
    assert time.monotonic() - begun < 5 * shares.PATIENCE_SECONDS  # what five would wait
    assert put_off == sorted(put_off)  # one after the other
    assert 0 < put_off[0] < put_off[-1] <= 30.0


async def test_scarce_places_of_a_namespace_are_shared_among_its_receivers(little_patience):
    given = limits(per_host=32, places=64)  # 48 for one namespace, 32 of them without sharing
    first = [await given.enter(f"host {n}", "team") for n in range(4) for _ in range(8)]
    assert not any(first)
    seconds = await asyncio.gather(given.enter("host 0", "team"), given.enter("new", "team"))
    assert seconds[0] > 0  # has its part
    assert seconds[1] == 0.0


async def test_many_receivers_of_one_namespace_leave_a_neighbours_receiver_its_turns():
    given = limits(per_host=32, places=256)
    for number in range(250):
        await given.enter(f"host {number}", "greedy")
    assert await enter(given, host="quiet's", namespace="quiet", times=20) == [0.0] * 20


async def test_no_namespace_gets_all_places_however_many_receivers_it_names():
    given = limits(per_host=32, places=64)
    took = 0
    for number in range(200):
        took += await given.enter(f"host {number}", "greedy") == 0.0
    assert took == 48
    assert await enter(given, host="quiet", namespace="modest") == [0.0]
