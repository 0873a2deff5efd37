"""How many Jobs a worker holds: enough for its connections, claimed many at a time."""

from __future__ import annotations

import asyncio
import contextlib

from duepoint.worker import jobline

PLACES = 8
IN_HAND = 4 * PLACES


def a_line() -> jobline.JobLine:
    return jobline.JobLine(PLACES)


def test_until_the_first_job_the_room_is_the_usual_one():
    assert a_line().room(1000) == 1000


def test_jobs_made_together_take_room_until_each_has_ended():
    line = a_line()
    with line.together(IN_HAND) as note_end:
        assert line.room(1000) == 0
        for _ in range(PLACES):
            note_end()
        assert line.room(1000) == PLACES
    assert line.room(1000) == IN_HAND


def test_room_for_a_few_is_no_room_yet():
    line = a_line()
    with line.together(IN_HAND - PLACES + 1):
        assert line.room(1000) == 0


def test_a_batch_that_breaks_off_gives_its_room_back():
    line = a_line()
    with contextlib.suppress(RuntimeError), line.together(IN_HAND) as note_end:
        note_end()
        raise RuntimeError
    assert line.length == 0


async def test_many_large_jobs_leave_small_ones_their_connections():
    line = a_line()
    begun = []

    async def make(namespace: str, *, is_large: bool) -> None:
        async with line.turn(namespace, is_large=is_large):
            begun.append(namespace)
            await asyncio.sleep(60)

    large = [asyncio.create_task(make("hostile", is_large=True)) for _ in range(IN_HAND)]
    await asyncio.sleep(0.01)
    assert begun == ["hostile"] * 3  # one of the four is left for somebody else's
    assert line.room(1000) == 0  # those that wait are in hand
    small = [asyncio.create_task(make("quiet", is_large=False)) for _ in range(2)]
    small.append(asyncio.create_task(make("quiet", is_large=True)))
    await asyncio.sleep(0.01)
    assert begun[3:] == ["quiet"] * 3
    for one in (*large, *small):
        one.cancel()
    await asyncio.gather(*large, *small, return_exceptions=True)
    assert line.length == 0
    assert await asyncio.wait_for(line._large.wait("hostile"), 1)
