"""Places for servers of somebody else's: one namespace's hanging ones are no other's trouble."""

from __future__ import annotations

import asyncio
import time

import pytest

from duepoint import clock
from duepoint.targets import pace
from duepoint.worker import slots


def places(most=256):
    return slots.ReceiverSlots(clock.SystemClock(), most)


async def enter(given, namespace, times=1):
    return await asyncio.gather(*(given.enter(namespace) for _ in range(times)))


async def test_two_namespaces_that_hang_leave_a_third_one_its_places():
    given = places()
    for namespace in ("hostile", "worse"):
        got = await enter(given, namespace, 256)
        assert any(got)
    begun = time.monotonic()
    assert await enter(given, "quiet", 8) == [0.0] * 8
    assert time.monotonic() - begun < pace.PATIENCE_SECONDS / 2


async def test_behind_what_hangs_nobody_waits_in_memory():
    given = places()
    await enter(given, "hostile", 300)
    begun = time.monotonic()
    put_off = await enter(given, "hostile", 300)
    assert time.monotonic() - begun < pace.PATIENCE_SECONDS
    assert min(put_off) >= pace.LEAST_SECONDS
    assert len(set(put_off)) == 300  # and they do not come back together


async def test_a_burst_that_moves_waits_for_its_places_and_none_is_put_off():
    given = places(4)

    async def deliver() -> float:
        seconds = await given.enter("team")
        if not seconds:
            await asyncio.sleep(0.001)
            given.leave("team")
        return seconds

    assert set(await asyncio.gather(*(deliver() for _ in range(200)))) == {0.0}


async def test_what_was_scarce_is_forgotten_when_all_of_it_has_ended():
    given = places(4)
    assert await enter(given, "team", 3) == [0.0] * 3
    assert (await enter(given, "team"))[0] > 0
    for _ in range(3):
        given.leave("team")
    assert not given._paces
    assert await enter(given, "team") == [0.0]


async def test_a_wait_that_is_cancelled_takes_no_place():
    given = places(4)
    await enter(given, "team", 3)
    waiting = asyncio.create_task(given.enter("team"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for _ in range(3):
        given.leave("team")
    assert given.take("another")


async def test_a_namespace_without_a_place_has_the_next_one_however_long_none_came_free():
    given = places(1)
    assert await given.enter("busy") == 0.0
    assert await given.enter("late") > 0
    await asyncio.sleep(pace.PATIENCE_SECONDS)
    again = asyncio.create_task(given.enter("late"))
    await asyncio.sleep(0)
    given.leave("busy")
    assert not given.take("busy")
    assert await again == 0.0
