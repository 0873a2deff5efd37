"""The time that two of three clocks agree on: this machine's, Redis's and the API server's.

A clock that is an hour wrong must not arm a slot in the past, skip one, or sign what a receiver
then refuses. So the others are heard: Redis tells its time when it is asked, the API server with
each answer (the ``Date`` header, whole seconds). Each is kept as its distance from the monotonic
clock, which no step moves. The first pair that agrees decides:

1. this machine and Redis, to half a second: this machine's clock is used as it is;
2. Redis and the API server, to two seconds: this machine is wrong, Redis's time is used;
3. this machine and the API server, to two seconds: Redis is wrong, this machine's is used.

Where only this machine and Redis are known, two seconds are enough for them. Where no two agree, or
this machine's clock has stepped since they were compared, nothing is known: ``distrust`` says so
until they are compared again, and the time goes on from what was agreed on last. Nobody asks here;
``clockwatch`` does.
"""

from __future__ import annotations

import email.utils
from dataclasses import dataclass

from duepoint.clock import MICROSECONDS_PER_SECOND, Clock

#: This machine's clock may be this far from Redis's and is used all the same.
NEAR_US = 500_000
#: Two clocks agree that differ by no more: the API server tells whole seconds.
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
class _Told:
    """What a clock said: its distance from the monotonic clock, and when it was asked."""

    distance_us: int
    at: float


class AgreedClock:
    """A ``Clock``; until the first comparison it is the one that it is made of."""

    #: As of ``SystemClock``; see ``clock.timer_step_seconds``.
    timer_step_seconds: float

    def __init__(self, own: Clock) -> None:
        self._own = own
        self.timer_step_seconds = float(getattr(own, "timer_step_seconds", 0.0))
        self._queue: _Told | None = None
        self._api: _Told | None = None
        self._own_distance_us = self._own_distance()
        #: Of the time that is used, where this machine's clock is not.
        self._agreed_us: int | None = None
        self._disagreement = _NOT_COMPARED

    # -- the clock -------------------------------------------------------------------------------

    def now_us(self) -> int:
        """The agreed UTC, in microseconds since the epoch."""
        if self._agreed_us is None and not self._has_stepped():
            return self._own.now_us()
        distance_us = self._own_distance_us if self._agreed_us is None else self._agreed_us
        return self._monotonic_us() + distance_us

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

    # -- what is told ----------------------------------------------------------------------------

    def note_queue(self, server_us: int, *, asked: float) -> None:
        """Redis said so, asked at this monotonic time; the clocks are compared."""
        self._queue = self._told(server_us, asked) or self._queue
        self.compare()

    def wants_api(self) -> bool:
        """Whether the next answer's time is worth reading."""
        return self._api is None or self.monotonic() - self._api.at >= API_SECONDS

    def note_api(self, date: str, *, asked: float) -> None:
        """An answer's ``Date``; it counts from the next comparison on."""
        try:
            told = email.utils.parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError):
            return
        half_us = MICROSECONDS_PER_SECOND // 2  # whole seconds, cut off
        self._api = self._told(int(told) * MICROSECONDS_PER_SECOND + half_us, asked) or self._api

    def compare(self) -> None:
        """By what was heard so far; nothing is known before Redis has told its time."""
        own_us, queue, api = self._own_distance(), self._queue, self._fresh_api()
        if queue is None:
            return
        near_us = NEAR_US if api is not None else AGREE_US
        if abs(own_us - queue.distance_us) <= near_us:
            self._agree(own_us, None)
        elif api is not None and abs(queue.distance_us - api.distance_us) <= AGREE_US:
            self._agree(own_us, queue.distance_us)
        elif api is not None and abs(own_us - api.distance_us) <= AGREE_US:
            self._agree(own_us, None)
        else:
            self._disagreement = self._disagreeing(own_us, queue, api)

    # -- what is known ---------------------------------------------------------------------------

    @property
    def skew_us(self) -> int | None:
        """This machine's clock less Redis's; None where Redis has told nothing."""
        return None if self._queue is None else self._own_distance() - self._queue.distance_us

    @property
    def api_skew_us(self) -> int | None:
        """This machine's clock less the API server's; None where that is not known, or no more."""
        api = self._fresh_api()
        return None if api is None else self._own_distance() - api.distance_us

    @property
    def is_own_used(self) -> bool:
        return self._agreed_us is None

    def _told(self, instant_us: int, asked: float) -> _Told | None:
        now = self.monotonic()
        if now - asked > _LONGEST_WAY_SECONDS:
            return None
        return _Told(instant_us - int((now + asked) / 2 * MICROSECONDS_PER_SECOND), now)

    def _agree(self, own_us: int, agreed_us: int | None) -> None:
        self._own_distance_us, self._agreed_us, self._disagreement = own_us, agreed_us, ""

    @staticmethod
    def _disagreeing(own_us: int, queue: _Told, api: _Told | None) -> str:
        said = f"Redis's is {_seconds(queue.distance_us - own_us)} of this machine's"
        if api is None:
            return f"the clocks disagree: {said}, and the API server's is not known"
        other = f"the API server's {_seconds(api.distance_us - own_us)}"
        return f"no two clocks agree: {said}, {other}; set them"

    def _fresh_api(self) -> _Told | None:
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


def distrust(clock: Clock) -> str:
    """Why this clock's time is not to be acted upon; empty where it is, or where nobody says."""
    return str(getattr(clock, "distrust", ""))
