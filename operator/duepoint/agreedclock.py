"""The time that two of three clocks agree on: this machine's, Redis's and the API server's.

A clock that is an hour wrong must not arm a slot in the past, skip one, or sign what a receiver
then refuses. So the other two are read: Redis's time is asked for, the API server's comes with
each answer (the ``Date`` header, whole seconds). Each is kept as its distance from the monotonic
clock, which no step moves. The first pair that agrees decides:

1. this machine and Redis, to half a second: this machine's clock is used as it is;
2. Redis and the API server, to two seconds: this machine is wrong, Redis's time is used, as late
   as it can be: as if its answer had come back at once, so that nothing is early by the way there;
3. this machine and the API server, to two seconds: Redis is wrong, this machine's is used.

Where only this machine and Redis are known, two seconds are enough for them. Where no two agree, or
this machine's clock has stepped since they were compared, nothing is known: ``distrust`` says so
until they are compared again, and the time goes on from what was agreed on last.

``AgreedClock`` only compares. ``ClockWatch`` asks, and reports in readiness and metrics how far
this machine's clock is off. A worker reads Redis's time with its keepalive; an operator asks for it
every ten seconds, and every second while no two clocks agree. The API server is asked only where
the other two differ and its time has not been read for a while. A process whose own clock is wrong
works on by the time that the others agree on, and is not ready, so that the clock gets set; an
operator arms nothing while no two agree. A worker claims by ``EarliestClock``.
"""

from __future__ import annotations

import asyncio
import email.utils
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from duepoint import errors, telemetry
from duepoint.clock import MICROSECONDS_PER_SECOND, Clock
from duepoint.services import Health

#: This machine's clock may be this far from Redis's and is used all the same.
NEAR_US = 500_000
#: Two clocks agree that differ by no more: the API server sends whole seconds.
AGREE_US = 2_000_000
#: This machine's clock has stepped if it moved so much more than the monotonic one.
STEP_US = 500_000
#: An answer that was under way for longer says too little.
_LONGEST_WAY_SECONDS = 2.0
#: The API server's time is read this often, of the answers that come anyway.
API_SECONDS = 5.0
#: It counts for this long: later it has to be asked for.
API_FRESH_SECONDS = 60.0

_NOT_COMPARED = "the clocks have not been compared yet"


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a clock said: its distance from the monotonic clock, and when it was heard.

    Attributes:
        distance_us: if request and answer were under way for equally long.
        least_us: if the answer took no time; the true distance is this or more.
    """

    distance_us: int
    least_us: int
    at: float


class AgreedClock:
    """A ``Clock``; until the first comparison it is the one that it is made of."""

    #: As of ``SystemClock``; see ``clock.timer_step_seconds``.
    timer_step_seconds: float

    def __init__(self, own: Clock) -> None:
        self._own = own
        self.timer_step_seconds = float(getattr(own, "timer_step_seconds", 0.0))
        self._queue: _Reading | None = None
        self._api: _Reading | None = None
        self._own_distance_us = self._own_distance()
        #: Of the time that is used, where this machine's clock is not.
        self._agreed_us: int | None = None
        self._disagreement = _NOT_COMPARED
        self._has_agreed = False

    # -- the clock -------------------------------------------------------------------------------

    def now_us(self) -> int:
        """The agreed UTC, in microseconds since the epoch."""
        if self._agreed_us is None and not self._has_stepped():
            return self._own.now_us()
        distance_us = self._own_distance_us if self._agreed_us is None else self._agreed_us
        return self._monotonic_us() + distance_us

    def earliest_us(self) -> int:
        """The earliest of what the time may be, so that nothing is claimed before it is due.

        That of this machine or the agreed one, whichever is behind. Where no two clocks have agreed
        yet, the API server's counts as well: the other two may be ahead by different times.
        """
        own_us = self._own.now_us()
        if self._agreed_us is None and not self._disagreement and not self._has_stepped():
            return own_us
        earliest_us = min(own_us, self.now_us())
        api = self._fresh_api()
        if self._has_agreed or api is None:
            return earliest_us
        # half a second was added to what was cut off, and the answer was on its way
        since_us = api.distance_us - MICROSECONDS_PER_SECOND - int(_LONGEST_WAY_SECONDS / 2 * 1e6)
        return min(earliest_us, self._monotonic_us() + since_us)

    def confirmed_us(self) -> int | None:
        """The agreed UTC, also where the clocks differ by now; None before any two have agreed.

        What was agreed on goes on by the monotonic clock, which no step moves, so it is as good as
        that clock's rate.
        """
        return self.now_us() if self._has_agreed else None

    def monotonic(self) -> float:
        return self._own.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)

    @property
    def distrust(self) -> str:
        """Why no time is agreed on; empty where one is."""
        if not self._disagreement and self._has_stepped():
            return "this machine's clock was set; it is being compared again"
        return self._disagreement

    # -- what other clocks say -----------------------------------------------------------------

    def note_queue(self, server_us: int, *, asked: float) -> None:
        """Redis said so, asked at this monotonic time; the clocks are compared."""
        self._queue = self._reading(server_us, asked) or self._queue
        self.compare()

    def wants_api(self) -> bool:
        """Whether the next answer's time is worth reading."""
        return self._api is None or self.monotonic() - self._api.at >= API_SECONDS

    def note_api(self, date: str, *, asked: float) -> None:
        """An answer's ``Date``; it counts from the next comparison on."""
        try:
            seconds = int(email.utils.parsedate_to_datetime(date).timestamp())
        except (TypeError, ValueError, OverflowError):
            return
        # whole seconds, cut off
        api_us = seconds * MICROSECONDS_PER_SECOND + MICROSECONDS_PER_SECOND // 2
        self._api = self._reading(api_us, asked) or self._api

    def compare(self) -> None:
        """By what was heard so far; nothing is known before Redis's time was read."""
        own_us, queue, api = self._own_distance(), self._queue, self._fresh_api()
        if queue is None:
            return
        near_us = NEAR_US if api is not None else AGREE_US
        if abs(own_us - queue.distance_us) <= near_us:
            self._agree(own_us, None)
        elif api is not None and abs(queue.distance_us - api.distance_us) <= AGREE_US:
            self._agree(own_us, queue.least_us)
        elif api is not None and abs(own_us - api.distance_us) <= AGREE_US:
            self._agree(own_us, None)
        else:
            said = f"Redis's is {_seconds(queue.distance_us - own_us)} of this machine's"
            if api is None:
                why = f"the clocks disagree: {said}, and the API server's is not known"
            else:
                other = f"the API server's {_seconds(api.distance_us - own_us)}"
                why = f"no two clocks agree: {said}, {other}; set them"
            self._disagreement = why

    # -- what is known ---------------------------------------------------------------------------

    @property
    def skew_us(self) -> int | None:
        """This machine's clock less Redis's; None until Redis's time was read."""
        return None if self._queue is None else self._own_distance() - self._queue.distance_us

    @property
    def api_skew_us(self) -> int | None:
        """This machine's clock less the API server's; None where that is not known, or no more."""
        api = self._fresh_api()
        return None if api is None else self._own_distance() - api.distance_us

    @property
    def is_own_used(self) -> bool:
        return self._agreed_us is None

    def _reading(self, instant_us: int, asked: float) -> _Reading | None:
        now = self.monotonic()
        way = now - asked
        if way > _LONGEST_WAY_SECONDS:
            return None
        least_us = instant_us - int(now * MICROSECONDS_PER_SECOND)
        return _Reading(least_us + int(way / 2 * MICROSECONDS_PER_SECOND), least_us, now)

    def _agree(self, own_us: int, agreed_us: int | None) -> None:
        self._own_distance_us, self._agreed_us, self._disagreement = own_us, agreed_us, ""
        self._has_agreed = True

    def _fresh_api(self) -> _Reading | None:
        api = self._api
        if api is None or self.monotonic() - api.at > API_FRESH_SECONDS:
            return None
        return api

    def _has_stepped(self) -> bool:
        return abs(self._own_distance() - self._own_distance_us) > STEP_US

    def _own_distance(self) -> int:
        return self._own.now_us() - self._monotonic_us()

    def _monotonic_us(self) -> int:
        return int(self._own.monotonic() * MICROSECONDS_PER_SECOND)


def _seconds(distance_us: int) -> str:
    side = "ahead" if distance_us > 0 else "behind"
    return f"{abs(distance_us) / MICROSECONDS_PER_SECOND:.1f} s {side}"


class EarliestClock:
    """A ``Clock`` for claims, which Redis makes by this time or its own, whichever is behind."""

    timer_step_seconds: float

    def __init__(self, agreed: AgreedClock) -> None:
        self._agreed = agreed
        self.timer_step_seconds = agreed.timer_step_seconds

    def now_us(self) -> int:
        """As ``AgreedClock.earliest_us``."""
        return self._agreed.earliest_us()

    def confirmed_us(self) -> int | None:
        """As ``AgreedClock.confirmed_us``."""
        return self._agreed.confirmed_us()

    def monotonic(self) -> float:
        return self._agreed.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._agreed.sleep(seconds)


def distrust(clock: Clock) -> str:
    """Why this clock's time is not to be acted upon; empty where it is, or for a plain clock."""
    return str(getattr(clock, "distrust", ""))


# -- asking and reporting ------------------------------------------------------------------------

PART = "clock"
LOOK_SECONDS = 10.0
_DOUBT_SECONDS = 1.0
#: A clock this far behind Redis's claims late.
BEHIND_LIMIT_US = 500_000
#: One this far ahead is nothing to go by, though everything is done by the others' time.
AHEAD_LIMIT_US = 60_000_000
_ASK_SECONDS = 5.0


class ClockWatch:
    """Of one process.

    Args:
        ask_api: has the API server answer anything; its time is heard with the answer. None where
            there is none at hand.
        ahead_limit_us: not ready with a clock that is further ahead of Redis's.
        consequence: of a clock that is behind.
        is_ready_when_off: whether the process is ready with a wrong clock, as long as two agree:
            where readiness is what brings it requests, and one wrong Redis would end them all.
    """

    def __init__(
        self,
        clock: AgreedClock,
        health: Health,
        *,
        ask_api: Callable[[], Awaitable[object]] | None = None,
        ahead_limit_us: int = AHEAD_LIMIT_US,
        consequence: str = "points are claimed late",
        is_ready_when_off: bool = False,
    ) -> None:
        self.clock = clock
        self._health = health
        self._ask_api = ask_api
        self._ahead_limit_us = ahead_limit_us
        self._consequence = consequence
        self._is_ready_when_off = is_ready_when_off
        self._is_said = False

    async def run(self, queue_time: Callable[[], Awaitable[int]]) -> None:
        """Compare until cancelled.

        Args:
            queue_time: Redis's time in microseconds; raises TryLater and WorldChanged.
        """
        while True:
            asked = self.clock.monotonic()
            is_away = False
            try:
                await self.heard(await queue_time(), asked=asked)
            except (errors.TryLater, errors.WorldChanged) as trouble:
                is_away = True
                telemetry.logger.debug("clocks not compared", error=str(trouble))
                if self.clock.distrust:
                    self._health.unwell(PART, f"{self.clock.distrust}: {trouble}")
            # In steps: a clock that was set is compared again at once.
            until = self.clock.monotonic() + (
                _DOUBT_SECONDS if is_away or self.clock.distrust else LOOK_SECONDS
            )
            while (left := until - self.clock.monotonic()) > 0:
                await self.clock.sleep(min(left, _DOUBT_SECONDS))
                if self.clock.distrust:
                    break

    async def heard(self, queue_us: int, *, asked: float) -> None:
        """Redis's time was read; it was asked for at this monotonic time."""
        self.clock.note_queue(queue_us, asked=asked)
        is_off = abs(self.clock.skew_us or 0) > NEAR_US
        if is_off and self.clock.api_skew_us is None and self._ask_api is not None:
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    await self._ask_api()
            except (errors.DuepointError, TimeoutError) as trouble:
                # A refusal carries the time, too.
                telemetry.logger.debug("the API server's time not asked for", error=str(trouble))
            self.clock.compare()  # Redis's time is as old as the API server was slow
        self._report()

    def _report(self) -> None:
        skew_us = self.clock.skew_us or 0
        telemetry.clock_skew_seconds.set(skew_us / 1_000_000)
        trouble = self.clock.distrust or self._trouble(skew_us)
        if trouble and (self.clock.distrust or not self._is_ready_when_off):
            self._health.unwell(PART, trouble)
        else:
            self._health.well(PART)
        # The first answer, which a connection was made for, may be too old to go by: all is well.
        is_known = trouble not in ("", _NOT_COMPARED)
        if is_known and not self._is_said:
            telemetry.logger.warning("clocks differ", trouble=trouble)
        self._is_said = is_known

    def _trouble(self, skew_us: int) -> str:
        seconds = f"{abs(skew_us) / 1_000_000:.1f} s"
        is_queue_wrong = self.clock.is_own_used and self.clock.api_skew_us is not None
        if skew_us < -BEHIND_LIMIT_US:
            if is_queue_wrong:
                return f"Redis's clock is {seconds} ahead of the others; set it"
            behind = f"this machine's clock is {seconds} behind Redis's"
            return f"{behind}: {self._consequence}; set the clock"
        if skew_us > AGREE_US and is_queue_wrong:
            return f"Redis's clock is {seconds} behind the others: points are claimed late; set it"
        if skew_us > self._ahead_limit_us:
            return f"this machine's clock is {seconds} ahead of Redis's; set the clock"
        return ""
