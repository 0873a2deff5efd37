"""When each shard is to be looked at again, and the sleep until then.

The table behind both kinds of wake-ups. A shard has at most one alarm; the earlier one wins, so
that a wake-up which arrives while an answer is on its way is never lost. Sleeping is done on the
given clock and cut short when an earlier alarm is set. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable

from duepoint import clock as clocks
from duepoint.delayqueue import messages

#: A wake-up for a shard that another worker is preferred for, in seconds on top of its due.
_STANDBY_DELAY_SECONDS = (0.2, 0.5)
#: A step of the server's clock, or of our own UTC, against our monotonic clock that makes all known
#: waits worthless: they were worked out by the earlier of the two.
_CLOCK_STEP_SECONDS = 0.05
#: The last step of a sleep is spent awake at most once in so many steps: 2 or 3 % of a core.
_AWAKE_EVERY = 40


class Alarms:
    """Shards and the monotonic times at which they are due."""

    def __init__(self, clock: clocks.Clock, shards: Iterable[messages.ShardId]) -> None:
        self.standby: frozenset[messages.ShardId] = frozenset()
        self.before_due: Callable[[tuple[messages.ShardId, ...]], None] = lambda _: None
        self._clock = clock
        self._shards = tuple(shards)
        self._at: dict[messages.ShardId, float] = {}
        self._earlier = asyncio.Event()
        self._offsets: tuple[float, float] | None = None
        self._incarnation: str | None = None
        self._step = clocks.timer_step_seconds(clock)
        self._awake_since = -math.inf
        self._announced = -math.inf
        self.ring_all()

    def ring_all(self) -> None:
        """Every shard is due now."""
        self.look_again(self._shards)

    def look_again(self, shards: Iterable[messages.ShardId], *, after_seconds: float = 0.0) -> None:
        for shard in shards:
            self._set(shard, after_seconds)

    def note(self, claimed: messages.Claimed) -> None:
        if claimed.more:
            self._set(claimed.shard, 0.0)
        elif claimed.wait_seconds is not None:
            self._set(claimed.shard, claimed.wait_seconds)

    def note_beat(self, beat: messages.Beat) -> None:
        now = self._clock.monotonic()
        offsets = beat.time_us / 1_000_000 - now, self._clock.now_us() / 1_000_000 - now
        # Compared with the beat of the last look at everything, not with the one before this: two
        # clocks that drift apart by 50 ppm never step, and are four seconds apart after a day.
        if self._offsets is None:
            self._offsets = offsets
        elif math.dist(offsets, self._offsets) > _CLOCK_STEP_SECONDS:
            self._offsets = offsets
            self.ring_all()
        if self._incarnation not in (None, beat.incarnation):
            self.ring_all()
        self._incarnation = beat.incarnation
        if min(self._at.values(), default=math.inf) <= now:
            self._earlier.set()  # the machine was suspended, and sleeps do not count that

    def wake(self, shard: messages.ShardId, in_seconds: float) -> None:
        """Something was put in front of this shard; what is long due waits for nobody."""
        delay = random.uniform(*_STANDBY_DELAY_SECONDS) if shard in self.standby else 0.0  # noqa: S311
        self._set(shard, max(0.0, in_seconds + delay))

    async def wait_until_due(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        deadline = self._clock.monotonic() + timeout_seconds
        while True:
            now = self._clock.monotonic()
            oldest = min(self._at.values(), default=math.inf)
            later = min((at for at in self._at.values() if at > now), default=math.inf)
            # Several shards are claimed in one round trip: it pays to wait a step for one more.
            if oldest <= now and (now >= deadline or later > oldest + self._step):
                due = tuple(shard for shard, at in self._at.items() if at <= now)
                for shard in due:
                    del self._at[shard]
                return due
            if now >= deadline:
                return ()
            self._earlier.clear()
            if later <= deadline:
                await self._approach(now, later)
            else:  # nothing is due then, so nobody has to be in time
                await clocks.wait_for(self._earlier, deadline - now, self._clock)

    async def _approach(self, now: float, at: float) -> None:
        """Sleep until a timer's step before; the rest is waited for awake, if that is rare."""
        step = self._step
        if at - now > 2 * step:
            await clocks.wait_for(self._earlier, at - now - 2 * step, self._clock)
        elif at - now > step:
            self._announce(now, at)
            await clocks.wait_for(self._earlier, at - now - step, self._clock)
        elif self._awake_since < now - 2 * step < self._awake_since + _AWAKE_EVERY * step:
            await clocks.wait_for(self._earlier, at - now, self._clock)
        else:
            if now - self._awake_since > 2 * step:
                self._awake_since = now
            await asyncio.sleep(0)

    def _announce(self, now: float, at: float) -> None:
        """Say which shards are due soon, as rarely as somebody stays awake for it."""
        if self._step and now - self._announced > _AWAKE_EVERY * self._step:
            self._announced = now
            soon = (shard for shard, due in self._at.items() if now < due <= at + self._step)
            if shards := tuple(soon):
                self.before_due(shards)

    def _set(self, shard: messages.ShardId, in_seconds: float) -> None:
        at = self._clock.monotonic() + in_seconds
        known = self._at.get(shard)
        if known is None or at < known:
            self._at[shard] = at
            self._earlier.set()
