"""How free room is shared out among shards, and how many Jobs a worker holds."""

from __future__ import annotations

import asyncio

from duepoint.clock import SystemClock
from duepoint.delayqueue import keys, messages, sharding
from duepoint.worker import room
from tests.fakes.fakeclock import DEFAULT_START_US, FakeClock

QUIET, BURST = messages.ShardId(0), messages.ShardId(keys.SHARDS_OF_A_NAMESPACE)


def a_room(in_hand: int = 0, more: int = 0) -> room.Room:
    """Of 1,000 points in claims of 500; so much of the burst is in hand, and so much more due."""
    made = room.Room(room.JobPlaces(SystemClock()), most=1_000, batch=500)
    made.in_hand[sharding.namespaces_of(BURST)] = in_hand
    made.more[BURST] = more
    return made


def test_each_shard_gets_a_part_until_it_is_known_that_it_has_more():
    assert a_room().requests([BURST, QUIET]) == ([([BURST, QUIET], room.PART)], [])
    assert a_room(in_hand=16, more=5_000).requests([BURST, QUIET]) == (
        [([QUIET], room.PART), ([BURST], 500)],
        [],
    )


def test_a_burst_waits_for_an_eighth_of_the_room_and_a_quiet_namespace_for_none():
    full = a_room(in_hand=900, more=5_000)
    assert not full.has_enough()
    assert full.requests([BURST, QUIET]) == ([([QUIET], room.PART)], [BURST])
    over = a_room(in_hand=1_000, more=5_000)
    assert over.requests([BURST, QUIET]) == ([([QUIET], room.PART)], [BURST])


# -- places of Jobs --------------------------------------------------------------------------------

PLACES = 8
IN_HAND = 4 * PLACES


def a_line(clock=None) -> room.JobPlaces:
    return room.JobPlaces(clock or FakeClock(), PLACES)


class Making:
    """Jobs that are made for as long as nobody ends them."""

    def __init__(self, line: room.JobPlaces) -> None:
        self.line = line
        self.begun: list[str] = []
        self.put_off: list[float] = []
        self.done = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, namespace: str, count: int, *, is_large: bool = False) -> None:
        made = [asyncio.create_task(self._make(namespace, is_large=is_large)) for _ in range(count)]
        self._tasks += made
        for _ in range(20):
            await asyncio.sleep(0)

    async def _make(self, namespace: str, *, is_large: bool) -> None:
        async with self.line.turn(namespace, is_large=is_large) as seconds:
            if seconds:
                self.put_off.append(seconds)
                return
            self.begun.append(namespace)
            await self.done.wait()

    async def end(self) -> None:
        for one in self._tasks:
            one.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self.line.length == 0


async def test_many_large_jobs_leave_small_ones_and_other_namespaces_their_places():
    clock = FakeClock(DEFAULT_START_US + 500_000)
    making = Making(a_line(clock))
    await making.begin("hostile", IN_HAND, is_large=True)
    await clock.advance(10)
    assert making.begun == ["hostile"]
    await making.begin("quiet", 2)
    await making.begin("quiet", 1, is_large=True)
    assert making.begun[1:] == ["quiet"] * 3
    await making.end()
    await clock.advance(10)
    await making.begin("hostile", 1, is_large=True)
    assert making.begun[4:] == ["hostile"]  # what was cut off has given its place back
    await making.end()


async def test_a_namespace_rests_after_each_large_job_for_twice_as_long_as_it_took():
    clock = FakeClock()
    making = Making(a_line(clock))
    await making.begin("hostile", 1, is_large=True)
    await clock.advance(0.1)
    making.done.set()
    await making.begin("hostile", 1, is_large=True)
    await clock.advance(0.19)
    assert making.begun == ["hostile"]
    await making.begin("hostile", 1)  # a small one need not wait
    assert making.begun == ["hostile"] * 2
    await clock.advance(0.02)
    assert making.begun == ["hostile"] * 3
    await making.end()


async def test_when_the_api_server_does_not_answer_a_worker_goes_on_claiming():
    clock = FakeClock()
    line = a_line(clock)
    making = Making(line)
    await making.begin("hostile", IN_HAND)
    assert line.room(1000) == 0
    await clock.advance(0.2)
    assert line.room(1000) == 0  # it may be a moment
    await clock.advance(0.2)
    assert line.room(1000) == PLACES
    await making.begin("hostile", 5)
    assert len(making.put_off) == 5
    assert len(set(making.put_off)) == 5  # and they do not come back together
    await making.begin("quiet", 1)
    assert len(making.put_off) == 5  # who has none waits in memory
    assert line.length == IN_HAND + 1
    await making.end()
