"""Places of attempts: how many Jobs a worker holds, and which places receivers that hang take."""

from __future__ import annotations

import asyncio

from duepoint.worker import slots
from tests.fakes.fakeclock import DEFAULT_START_US, FakeClock

PLACES = 8
IN_HAND = 4 * PLACES
LARGE = 240 * 1024


def a_line(clock=None) -> slots.JobSlots:
    return slots.JobSlots(clock or FakeClock(), PLACES)


class Making:
    """Jobs that are made for as long as nobody ends them."""

    def __init__(self, line: slots.JobSlots) -> None:
        self.line = line
        self.begun: list[str] = []
        self.put_off: list[float] = []
        self.done = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, namespace: str, count: int, *, large_bytes: int = 0) -> None:
        made = [asyncio.create_task(self._make(namespace, large_bytes)) for _ in range(count)]
        self._tasks += made
        for _ in range(20):
            await asyncio.sleep(0)

    async def _make(self, namespace: str, large_bytes: int) -> None:
        async with self.line.turn(namespace, large_bytes=large_bytes) as seconds:
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
    await making.begin("hostile", IN_HAND, large_bytes=LARGE)
    await clock.advance(10)
    assert making.begun == ["hostile"] * 3  # one of the four is left for another namespace
    await making.begin("quiet", 2)
    await making.begin("quiet", 1, large_bytes=LARGE)
    assert making.begun[3:] == ["quiet"] * 3
    await making.end()
    await clock.advance(10)
    await making.begin("hostile", 1, large_bytes=LARGE)
    assert making.begun[6:] == ["hostile"]  # what was cut off has given its place back
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
