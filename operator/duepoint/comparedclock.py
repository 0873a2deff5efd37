"""The clock of a process, compared with Redis's and the API server's.

A clock that is an hour wrong must not arm a slot in the past, skip one, or make signatures that
receivers refuse. So a process begins its work only after its machine's clock was found right:
within ``LIMIT_US`` of Redis's or, if Redis's differs or is unknown, of the API server's. From then
on its time follows the monotonic clock, which no step moves. Each comparison that finds the
machine's clock right sets the time to it again. If the machine's clock is set wrong later, the
process continues with the right time, and reports that it is not ready, so that somebody notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from duepoint import errors, telemetry
from duepoint.clock import MICROSECONDS_PER_SECOND, Clock
from duepoint.services import Health

#: Clocks that are further apart differ. The API server gives its time in whole seconds.
LIMIT_US = 2_000_000
#: An answer that took longer is too imprecise for a comparison.
_LONGEST_ROUND_TRIP_SECONDS = 2.0
#: Longest wait for an answer.
_ASK_SECONDS = 5.0
#: Time between comparisons, and the shorter one until the clock is found right.
_COMPARE_SECONDS = 10.0
_DOUBT_SECONDS = 1.0
#: How long ``before_work`` waits for the first good comparison before it raises.
_PATIENCE_SECONDS = 5.0

#: The part of a process's health that says whether its clock is right.
PART = "clock"


class ComparedClock:
    """A ``Clock`` whose time follows the monotonic clock from one comparison to the next."""

    #: The same as ``SystemClock``'s; see ``clock.timer_step_seconds``.
    timer_step_seconds: float

    def __init__(self, own: Clock) -> None:
        self._own = own
        self.timer_step_seconds = float(getattr(own, "timer_step_seconds", 0.0))
        #: This machine's clock minus Redis's; None until Redis's time was read.
        self.skew_us: int | None = None
        self.use_own()

    def now_us(self) -> int:
        """Return UTC in microseconds since the epoch."""
        return self._monotonic_us() + self._distance_us

    def monotonic(self) -> float:
        return self._own.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)

    def use_own(self) -> None:
        """Set the time to that of this machine's clock."""
        self._distance_us = self._own.now_us() - self._monotonic_us()

    def skew_from(self, other_us: int, asked: float) -> int | None:
        """Return this machine's clock minus another one, requested at monotonic time ``asked``.

        None if the answer took too long.
        """
        seconds = self.monotonic() - asked
        if seconds > _LONGEST_ROUND_TRIP_SECONDS:
            return None
        return self._own.now_us() - other_us - int(seconds / 2 * MICROSECONDS_PER_SECOND)

    def _monotonic_us(self) -> int:
        return int(self._own.monotonic() * MICROSECONDS_PER_SECOND)


class ClockWatch:
    """Compares the clock of a process, and reports in readiness and metrics how far it is off.

    Args:
        api_time: asks the API server for its time, in microseconds.

    Attributes:
        right: set once the clock has been found right; then the process may begin its work.
    """

    def __init__(
        self, clock: ComparedClock, health: Health, api_time: Callable[[], Awaitable[int]]
    ) -> None:
        self.right = asyncio.Event()
        self._clock = clock
        self._health = health
        self._api_time = api_time
        self._trouble = ""
        health.expect(PART)

    async def run(self, redis_time: Callable[[], Awaitable[int]]) -> None:
        """Compare until cancelled; ``redis_time`` asks Redis for its time, in microseconds."""
        while True:
            await self.compare(redis_time)
            is_right = self.right.is_set() and not self._trouble
            await self._clock.sleep(_COMPARE_SECONDS if is_right else _DOUBT_SECONDS)

    async def before_work(self) -> None:
        """Wait until the clock has been found right; raises TryLater if that takes long."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self.right.wait()
        except TimeoutError:
            raise errors.TryLater(self._trouble or "the clocks are not compared yet") from None

    async def compare(self, redis_time: Callable[[], Awaitable[int]]) -> None:
        """Compare this machine's clock with Redis's.

        If that differs or is not known, compare it with the API server's as well, so that a
        process can start without Redis and report it.
        """
        skews = {"Redis's": await self._skew_us(redis_time)}
        skew_us = skews["Redis's"]
        if skew_us is not None:
            self._clock.skew_us = skew_us
            telemetry.clock_skew_seconds.set(skew_us / MICROSECONDS_PER_SECOND)
        if skew_us is None or abs(skew_us) > LIMIT_US:
            skews["the API server's"] = await self._skew_us(self._api_time)
        known = {whose: skew for whose, skew in skews.items() if skew is not None}
        if any(abs(skew) <= LIMIT_US for skew in known.values()):
            self._trouble = ""
            self._clock.use_own()
            self._health.well(PART)
            self.right.set()
        elif known:
            former, self._trouble = self._trouble, _trouble(known, skews.keys() - known)
            self._health.unwell(PART, self._trouble)
            if not former:
                telemetry.logger.warning("clocks differ", trouble=self._trouble)

    async def _skew_us(self, ask: Callable[[], Awaitable[int]]) -> int | None:
        """Return this machine's clock minus another one; None if that is not known."""
        asked = self._clock.monotonic()
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                return self._clock.skew_from(await ask(), asked)
        except (errors.DuepointError, TimeoutError) as trouble:
            telemetry.logger.debug("another clock's time is not known", error=str(trouble))
            return None


def _trouble(skews: Mapping[str, int], unknown: Iterable[str]) -> str:
    """Return the message about clocks that differ, and about those that did not answer."""
    apart = " and ".join(f"{_apart(skew_us)} {whose}" for whose, skew_us in skews.items())
    more = "".join(f", and {whose} is not known" for whose in unknown)
    return (
        f"this machine's clock is {apart}{more}; set {'the clock that is wrong' if more else 'it'}"
    )


def _apart(skew_us: int) -> str:
    side = "ahead of" if skew_us > 0 else "behind"
    return f"{abs(skew_us) / MICROSECONDS_PER_SECOND:.1f} s {side}"
