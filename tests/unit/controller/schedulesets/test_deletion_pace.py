"""How long the rests between the steps of a set's removal are."""

from __future__ import annotations

import asyncio
import types
import uuid

from duepoint.controller.schedulesets.setdeletions import STEP_MEMBERS, SetDeletions
from duepoint.delayqueue.members.removal import Removal
from duepoint.schedules.sets.setrecord import SetRecord, SetState
from duepoint.schedules.sets.setspec import SetSettings
from tests.fakes.fakeclock import FakeClock
from tests.support.terms import a_term


class SlowServer:
    """Removes what it is asked to, each time after so many seconds."""

    def __init__(self, clock: FakeClock, members: int, seconds: float) -> None:
        self._clock = clock
        self._left = members
        self._seconds = seconds

    async def step(self, record: SetRecord, epoch: int, *, most: int) -> Removal:
        await self._clock.sleep(self._seconds)
        removed = min(most, self._left)
        self._left -= removed
        return Removal(removed=removed, left=self._left, is_done=not self._left)


async def removal_seconds(members: int, step_seconds: float) -> float:
    clock, ended = FakeClock(), asyncio.Event()
    record = SetRecord(
        namespace="shop", name="reminders", uid=str(uuid.uuid4()), generation=1,
        state=SetState.DELETING, spread=0, target="", settings=SetSettings(),
    )  # fmt: skip
    queue = types.SimpleNamespace(set_removals=SlowServer(clock, members, step_seconds))

    async def finished(_: SetRecord) -> None:
        ended.set()

    service = SetDeletions(a_term(clock, queue=queue), report=lambda *_: None, finished=finished)
    began = clock.monotonic()
    running = asyncio.create_task(service.run())
    service.begin(record, began_us=clock.now_us())
    while not ended.is_set():
        await clock.advance(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return clock.monotonic() - began


async def test_the_servers_have_two_thirds_of_their_time_for_others():
    seconds = await removal_seconds(50 * STEP_MEMBERS, 0.003)
    assert 0.44 <= seconds <= 0.5


async def test_on_a_busy_machine_a_large_set_is_removed_all_the_same():
    """A step that waits for others is no reason to rest for twice as long: that would be 7.4 s."""
    seconds = await removal_seconds(50 * STEP_MEMBERS, 0.05)
    assert seconds <= 3.1
