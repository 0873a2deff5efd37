"""Turns of one receiver: who gets one, who waits, who is put off, and who is never kept waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

from duepoint import clock
from duepoint.targets import pace
from duepoint.targets.webhook import admission
from tests.fakes import fakeclock


def limits(per_host=2, places=256):
    return admission.HostLimits(clock.SystemClock(), per_host=per_host, places=places)


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is put off soon; for tests in which it does not matter how soon."""
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 0.01)


async def enter(given, host="host", namespace="team", times=1):
    return [await given.enter(host, namespace) for _ in range(times)]


async def test_a_receiver_gets_so_many_at_a_time(little_patience):
    given = limits(per_host=2)
    assert await enter(given, times=2) == [0.0, 0.0]
    assert (await enter(given))[0] > 0
    given.leave("host")
    assert await enter(given) == [0.0]


async def test_a_burst_at_a_receiver_that_answers_waits_for_its_turns(monkeypatch):
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 60.0)
    given = limits(per_host=4)
    most = running = 0

    async def deliver() -> float:
        nonlocal most, running
        seconds = await given.enter("host", "team")
        if seconds:
            return seconds
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        given.leave("host")
        return 0.0

    assert sum(await asyncio.gather(*(deliver() for _ in range(100)))) == 0.0
    assert most == 4


async def test_at_one_that_hangs_nobody_waits_long_and_later_ones_not_at_all():
    given = limits(per_host=1)
    await enter(given)
    await asyncio.gather(*(given.enter("host", "team") for _ in range(5)))
    begun = time.monotonic()
    put_off = [await given.enter("host", "team") for _ in range(5)]
    assert time.monotonic() - begun < 5 * pace.PATIENCE_SECONDS  # what five would wait
    assert put_off == sorted(put_off)  # one after the other
    assert 0 < put_off[0] < put_off[-1] <= 30.0


@pytest.mark.parametrize(("stood", "apart"), [(1.0, 0.1), (20.0, 2.0)])
async def test_the_longer_one_stands_still_the_further_apart_its_deliveries_come_back(stood, apart):
    ticking = fakeclock.FakeClock()
    given = admission.HostLimits(ticking, per_host=1, places=256)
    await enter(given)
    await ticking.advance(stood)
    first, second, third = await enter(given, times=3)
    assert second - first == pytest.approx(apart)
    assert third - second == pytest.approx(apart)


async def test_who_is_put_off_by_one_receiver_is_not_by_another():
    given = limits(per_host=1)
    await enter(given)
    assert await enter(given, host="another") == [0.0]


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


async def test_a_turn_given_to_somebody_who_was_cancelled_goes_to_the_next():
    given = limits(per_host=1)
    await enter(given)
    waiting = [asyncio.create_task(given.enter("host", "team")) for _ in range(2)]
    await asyncio.sleep(0)
    given.leave("host")  # the turn is given to the first, who does not know yet
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert await waiting[1] == 0.0


async def test_nothing_is_kept_of_receivers_that_nobody_calls():
    given = limits(per_host=1)
    for number in range(50):
        await given.enter(f"host {number}", "team")
        given.leave(f"host {number}")
    assert not given._hosts
    assert not given._called
    assert given._shares.taken == 0


async def test_a_receiver_whose_last_waiter_was_cancelled_is_forgotten():
    given = limits(per_host=1)
    assert await given.enter("host", "team") == 0.0
    waiting = asyncio.create_task(given.enter("host", "team"))
    await asyncio.sleep(0)
    given.leave("host")  # its turn is the other's by now
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not given._hosts
    assert not given._called  # else the others of the namespace share with nobody
