"""The clocks of the services: wall clock, monotonic clock, and sleeping.

The domain takes time as an argument; only services hold a Clock. Instants are whole microseconds
since 1970-01-01T00:00:00Z. Durations and deadlines inside loops use the monotonic clock, so that
a step of the wall clock neither shortens nor prolongs them.

Our monotonic clock also counts while the machine is suspended, if the system has such a clock
(Linux). After a minute of standstill of a virtual machine, the claims and the Lease of its
processes have expired, and they must know that before they send anything. The event loop's timers
do not count that minute and fire late; code that wakes up has to check this clock.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

MICROSECONDS_PER_SECOND = 1_000_000

_COUNTS_ALWAYS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The interface of a clock, through which services see time."""

    def now_us(self) -> int:
        """Return this machine's UTC, in microseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` monotonic seconds."""
        ...


class SystemClock:
    """The clocks of this machine."""

    #: The event loop's timers are rounded up to whole milliseconds, and waking takes a moment.
    timer_step_seconds = 0.0015

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.clock_gettime(_COUNTS_ALWAYS)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def timer_step_seconds(clock: Clock) -> float:
    """Return by how much a sleep on this clock may end late; 0 for a virtual clock."""
    return float(getattr(clock, "timer_step_seconds", 0.0))


async def wait_for(event: asyncio.Event, seconds: float | None, clock: Clock) -> None:
    """Return when the event is set or ``seconds`` have passed; None = only the event."""
    if event.is_set():
        return
    if seconds is None:
        await event.wait()
        return
    ends = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
