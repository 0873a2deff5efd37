"""Has the clocks compared, and says in readiness and metrics how far this machine's is off.

A worker hears Redis's time with its keepalive; an operator asks for it every ten seconds, and
every second while no two clocks agree. The API server's time comes with answers that are wanted
anyway; it is asked for only where the other two differ and it has not been heard for a while. A
process whose own clock is wrong works on by the time that the others agree on, and is not ready, so
that the clock gets set; an operator arms nothing while no two agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from duepoint import agreedclock, errors, telemetry
from duepoint.agreedclock import AgreedClock
from duepoint.services import Health

PART = "clock"
LOOK_SECONDS = 10.0
_DOUBT_SECONDS = 1.0
#: A clock this far behind Redis's claims late.
BEHIND_LIMIT_US = 500_000
#: One this far ahead is nothing to go by, though everything is done by the others' time.
AHEAD_LIMIT_US = 60_000_000
_ASK_SECONDS = 5.0


async def _nobody_to_ask() -> None:
    """Where there is no API server at hand."""


class ClockWatch:
    """Of one process.

    Args:
        ask_api: has the API server answer anything; its time is heard with the answer.
        ahead_limit_us: not ready with a clock that is further ahead of Redis's.
        consequence: of a clock that is behind.
    """

    def __init__(
        self,
        clock: AgreedClock,
        health: Health,
        *,
        ask_api: Callable[[], Awaitable[object]] = _nobody_to_ask,
        ahead_limit_us: int = AHEAD_LIMIT_US,
        consequence: str = "points are claimed late",
    ) -> None:
        self.clock = clock
        self._health = health
        self._ask_api = ask_api
        self._ahead_limit_us = ahead_limit_us
        self._consequence = consequence

    async def run(self, queue_time: Callable[[], Awaitable[int]]) -> None:
        """Compare until cancelled.

        Args:
            queue_time: Redis's time in microseconds; raises TryLater and WorldChanged.
        """
        while True:
            asked = self.clock.monotonic()
            try:
                await self.heard(await queue_time(), asked=asked)
            except (errors.TryLater, errors.WorldChanged) as trouble:
                telemetry.logger.debug("clocks not compared", error=str(trouble))
                if self.clock.distrust:
                    self._health.unwell(PART, f"{self.clock.distrust}: {trouble}")
            seconds = _DOUBT_SECONDS if self.clock.distrust else LOOK_SECONDS
            await self._sleep(seconds)

    async def heard(self, queue_us: int, *, asked: float) -> None:
        """Redis told its time, asked at this monotonic time."""
        self.clock.note_queue(queue_us, asked=asked)
        if self._is_off() and self.clock.api_skew_us is None:
            await self._hear_api()
            self.clock.compare()  # what Redis told is as old as the API server was slow
        self._tell()

    async def _sleep(self, seconds: float) -> None:
        """In steps: a clock that was set is compared again at once."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left, _DOUBT_SECONDS))
            if seconds > _DOUBT_SECONDS and self.clock.distrust:
                return

    async def _hear_api(self) -> None:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                await self._ask_api()
        except (errors.DuepointError, TimeoutError) as trouble:
            # A refusal has told the time, too.
            telemetry.logger.debug("the API server's time not asked for", error=str(trouble))

    def _is_off(self) -> bool:
        return abs(self.clock.skew_us or 0) > agreedclock.NEAR_US

    def _tell(self) -> None:
        skew_us = self.clock.skew_us or 0
        telemetry.clock_skew_seconds.set(skew_us / 1_000_000)
        trouble = self.clock.distrust or self._trouble(skew_us)
        if not trouble:
            self._health.well(PART)
        elif self._health.unwell(PART, trouble):
            telemetry.logger.warning("clocks differ", trouble=trouble)

    def _trouble(self, skew_us: int) -> str:
        seconds = f"{abs(skew_us) / 1_000_000:.1f} s"
        if skew_us < -BEHIND_LIMIT_US:
            if self._is_queue_wrong():
                return f"Redis's clock is {seconds} ahead of the others; set it"
            return (
                f"this machine's clock is {seconds} behind Redis's: {self._consequence}; "
                "set the clock"
            )
        if skew_us > agreedclock.AGREE_US and self._is_queue_wrong():
            return f"Redis's clock is {seconds} behind the others: points are claimed late; set it"
        if skew_us > self._ahead_limit_us:
            return f"this machine's clock is {seconds} ahead of Redis's; set the clock"
        return ""

    def _is_queue_wrong(self) -> bool:
        return self.clock.is_own_used and self.clock.api_skew_us is not None
