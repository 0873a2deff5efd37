"""A worker's alarm clock: sleeps locally until a shard is due, or a new point is due earlier.

``Wakeups`` is the table of when to claim from each shard again, and sleeps until then. A shard has
at most one alarm; the earlier one wins, so a wake-up that arrives while a reply is in flight is
never lost. It subscribes to the ``wake`` channels of all shards. No command blocks: the server
checks time-outs of blocking commands every 1000/hz ms, which made wake-ups 38-83 ms late (p50)
against 0.1-0.5 ms for a local timer.

A message carries the due and the server's time of that moment. A busy event loop reads it
milliseconds later. ``ServerClock`` measures how much later: no message can be younger than it
seems, so the one that came fastest in the last minute gives the best distance of the server's clock
from our monotonic one. Each server of a cluster has a clock of its own (``ServerClocks``). Use it
in one event loop; claiming is left to the worker.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Hashable, Iterable

from duepoint import clock as clocks
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.wire import subscription

#: How much later than its due to wake for a shard whose preferred worker is another one.
_STANDBY_DELAY_SECONDS = (0.2, 0.5)
#: If the server's clock, or our own UTC, steps by more than this against our monotonic clock, all
#: waits are invalid: they were computed with the earlier of the two.
_CLOCK_STEP_SECONDS = 0.05
#: The loop spins through the last step of a sleep at most once in this many: 2 or 3 % of a core.
_AWAKE_EVERY = 40
#: How long the fastest message counts; clocks drift by milliseconds in that time.
WINDOW_SECONDS = 30.0
#: Called with the shards that are due within a timer's step, while the loop spins until then.
BeforeDue = Callable[[tuple[messages.ShardId, ...]], None]


class ServerClock:
    """Compares the server's times with our monotonic clock."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        #: The least distance of the clocks by any of the server's times in a window.
        self._before = self._least = math.inf

    def age_seconds(self, server_us: int) -> float:
        """Return how long ago the server's clock showed this instant; >= 0."""
        now = self._clock.monotonic()
        if now - self._began > WINDOW_SECONDS:
            self._began, self._before, self._least = now, self._least, math.inf
        distance = now - server_us / 1_000_000
        self._least = min(self._least, distance)
        return distance - min(self._before, self._least)


class ServerClocks:
    """The clock of each server, looked up by shard."""

    def __init__(self, index: index.Index) -> None:
        self._index = index
        self._generation = index.servers.changes.generation
        self._by_home: dict[Hashable, ServerClock] = {}
        self._by_shard: dict[messages.ShardId, ServerClock] = {}

    def of(self, shard: messages.ShardId) -> ServerClock:
        """Return the clock of the server that holds the shard now."""
        if self._generation == self._index.servers.changes.generation:
            known = self._by_shard.get(shard)
            if known is not None:
                return known
        else:  # slots have moved to other servers
            self._generation = self._index.servers.changes.generation
            self._by_shard.clear()
        homes = self._index.servers.homes((self._index.shard(shard).wake,))
        home = next(iter(homes), None)
        found = self._by_home.setdefault(home, ServerClock(self._index.clock))
        self._by_shard[shard] = found
        return found


class Wakeups:
    """A worker's alarm clock: the monotonic times when the shards of a layout are due.

    Order of use: ``start`` subscribes; the first ``wait_until_due`` returns every shard; each
    answer of ``claim`` goes to ``note``. After a lost subscription every shard is due again.

    Args:
        index: its layout must have been read.

    Attributes:
        standby: shards that another live worker should claim first: woken 200-500 ms later.
    """

    def __init__(
        self,
        *,
        index: index.Index,
        server_clocks: ServerClocks,
        before_due: BeforeDue | None = None,
    ) -> None:
        self.standby: frozenset[messages.ShardId] = frozenset()
        self._before_due = before_due
        self._clock = clock = index.clock
        self._shards = sharding.all_shards(index.known_layout())
        self._at: dict[messages.ShardId, float] = {}
        self._earlier = asyncio.Event()
        self._offsets: tuple[float, float] | None = None
        self._incarnation: str | None = None
        self._step = clocks.timer_step_seconds(clock)
        self._awake_since = -math.inf
        self._announced = -math.inf
        self.ring_all()
        self._servers = index.servers
        self._server_clocks = server_clocks
        self._shard_of = {index.shard(shard).wake: shard for shard in self._shards}
        self._subscription = subscription.Subscription(
            index.servers,
            tuple(self._shard_of),
            on_subscribed=self.ring_all,
            on_message=self._on_message,
            clock=clock,
        )

    def ring_all(self) -> None:
        """Make every shard due now."""
        self.ring_after(self._shards)

    def ring_after(self, shards: Iterable[messages.ShardId], *, after_seconds: float = 0.0) -> None:
        """Make these shards due after this long, unless they are due earlier."""
        for shard in shards:
            self._set(shard, after_seconds)

    def note(self, claimed: messages.Claimed) -> None:
        """Note from the answer of a claim when this shard is due again."""
        if claimed.more:
            self._set(claimed.shard, 0.0)
        elif claimed.wait_seconds is not None:
            self._set(claimed.shard, claimed.wait_seconds)

    def note_beat(self, beat: messages.Beat) -> None:
        """Ring all if a clock stepped or the index was created anew."""
        now = self._clock.monotonic()
        offsets = beat.time_us / 1_000_000 - now, self._clock.now_us() / 1_000_000 - now
        # Compare with the last beat that rang all, not with the one before this: clocks
        # that drift apart by 50 ppm never step, and are four seconds apart after a day.
        if self._offsets is None:
            self._offsets = offsets
        elif math.dist(offsets, self._offsets) > _CLOCK_STEP_SECONDS:
            self._offsets = offsets
            self.ring_all()
        if self._incarnation not in (None, beat.incarnation):
            self.ring_all()
        self._incarnation = beat.incarnation
        if min(self._at.values(), default=math.inf) <= now:
            self._earlier.set()  # the machine was suspended, which sleeps do not count

    def wake(self, shard: messages.ShardId, in_seconds: float) -> None:
        """Make this shard due after this long: it has a new, earlier point."""
        delay = random.uniform(*_STANDBY_DELAY_SECONDS) if shard in self.standby else 0.0  # noqa: S311
        self._set(shard, max(0.0, in_seconds + delay))

    async def wait_until_due(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        """Return the shards that are due; empty after ``timeout_seconds`` without any.

        A shard that was returned is not returned again before it is noted or woken.
        """
        deadline = self._clock.monotonic() + timeout_seconds
        while True:
            now = self._clock.monotonic()
            oldest = min(self._at.values(), default=math.inf)
            later = min((at for at in self._at.values() if at > now), default=math.inf)
            # One round trip claims from several shards: it pays to wait a step for one more.
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
            else:  # no shard is due by then, so the sleep may end a little late
                await clocks.wait_for(self._earlier, deadline - now, self._clock)

    async def _approach(self, now: float, at: float) -> None:
        """Sleep until a timer's step before ``at``; spin through the rest, unless too often."""
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
        """Report the shards that are due soon, as rarely as the loop spins for one."""
        if self._before_due is None or not self._step:
            return
        if now - self._announced > _AWAKE_EVERY * self._step:
            self._announced = now
            soon = (shard for shard, due in self._at.items() if now < due <= at + self._step)
            if shards := tuple(soon):
                self._before_due(shards)

    def _set(self, shard: messages.ShardId, in_seconds: float) -> None:
        at = self._clock.monotonic() + in_seconds
        known = self._at.get(shard)
        if known is None or at < known:
            self._at[shard] = at
            self._earlier.set()

    async def start(self) -> None:
        # A process that meets another server must claim from all shards at once: until its first
        # claim the server is in doubt, and points that fall due before it have to wait.
        self._servers.changes.on_upheaval.append(self.ring_all)
        await self._subscription.start()

    async def close(self) -> None:
        if self.ring_all in self._servers.changes.on_upheaval:
            self._servers.changes.on_upheaval.remove(self.ring_all)
        await self._subscription.close()

    def _on_message(self, channel: str, data: bytes) -> None:
        shard = self._shard_of[channel]
        try:
            due_us, now_us = map(int, data.split(b" "))
        except ValueError:  # a message of another version: claim and see
            self.wake(shard, 0.0)
            return
        age = self._server_clocks.of(shard).age_seconds(now_us)
        self.wake(shard, (due_us - now_us) / 1_000_000 - age)
