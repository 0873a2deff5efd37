"""Fires Schedules while something else happens, and records how late each firing is.

Schedules of ``@every 20.1s`` are stored as if they were made at 201 different seconds, so some are
due every tenth of a second. The product's worker fires them, one stream entry for each batch.
Lateness is the time from the due until the worker calls the target.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from benchmarks.queuespeed import chain, place
from duepoint.delayqueue import delayqueue, messages
from duepoint.schedules import actions
from duepoint.schedules import rule as rules
from duepoint.targets import target

_PERIOD_SECONDS, _PERIOD_US = 20.1, 20_100_000
_STEPS = 201  # of the period, 100 ms each
_LEAD_SECONDS = 5
_BLOB = actions.encode(actions.Action(target=actions.StreamAction(name="firings")))


class NotesTimes(chain.OneEntryABatch):
    """Publishes one entry for a batch, and notes how late each slot was, in ms."""

    def __init__(self, from_us: int) -> None:
        self._from_us = from_us
        self.late_ms = array.array("f")

    def entries(self, firings: target.Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        now_us = place.now_us()
        dues_us = [due_us for due_us in firings.slots_us if due_us >= self._from_us]
        self.late_ms.extend((now_us - due_us) / 1000 for due_us in dues_us)
        return super().entries(firings, members)


@contextlib.asynccontextmanager
async def going_on(queue: delayqueue.DelayQueue, rate: int) -> AsyncIterator[NotesTimes]:
    """Fire Schedules at this rate within the context, which begins when the first are due."""
    begin_us = (place.now_us() // 1_000_000 + _LEAD_SECONDS + rate // 500) * 1_000_000
    rule = rules.Rule(timing=rules.Timing(schedules=(f"@every {_PERIOD_SECONDS}s",)))
    wanted = []
    for number in range(int(rate * _PERIOD_SECONDS)):
        created_us = begin_us - number % _STEPS * 1_000_000
        due_us = created_us + -(-(begin_us - created_us) // _PERIOD_US) * _PERIOD_US
        wanted.append(
            place.arming(queue, "firing", f"fires-{number}", due_us, rule=rule,
                         created_us=created_us, blob=_BLOB)
        )  # fmt: skip
    await place.store(queue, wanted)
    noted = NotesTimes(begin_us)
    work = chain.a_worker(queue, noted)
    running = asyncio.create_task(work.run())
    try:
        await asyncio.sleep((begin_us - place.now_us()) / 1_000_000)
        yield noted
    finally:
        work.drain()
        await running
