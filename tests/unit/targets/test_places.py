"""Places of receivers: who gets one, who waits, who is put off, and who is never kept waiting."""

from __future__ import annotations

import asyncio
import time

from duepoint import clock, shares
from duepoint.targets import places


def given(count=256, most=None):
    return places.ReceiverPlaces(clock.SystemClock(), count, most=most)


async def test_at_one_that_hangs_nobody_waits_long_and_later_ones_not_at_all():
    made = given(most=1)
    assert await made.enter("host") == 0.0
    await asyncio.gather(*(made.enter("host") for _ in range(5)))
    begun = time.monotonic()
    put_off = [await made.enter("host") for _ in range(5)]
    assert time.monotonic() - begun < 5 * shares.PATIENCE_SECONDS  # what five would wait
    assert put_off == sorted(put_off)  # one after the other
    assert 0 < put_off[0] < put_off[-1] <= 30.0


async def test_receivers_that_hang_leave_places_for_another_one():
    made = given(48, most=32)
    for number in range(2):
        while not await made.enter(f"hanging {number}"):
            pass
    assert await made.enter("new") == 0.0


async def test_who_waits_has_the_next_place_that_comes_free():
    made = given(most=1)
    assert not await made.enter("host")
    waiting = asyncio.create_task(made.enter("host"))
    await asyncio.sleep(0)
    made.leave("host")
    assert await waiting == 0.0
    made.leave("host")
    assert made.is_idle
