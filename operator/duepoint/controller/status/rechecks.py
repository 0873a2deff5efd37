"""Statuses that are looked at although nothing was reported of them.

- ``Corrections``: those that another client has changed.
- ``NextPassed``: those whose NEXT has passed, or whose last run has ended.
"""

from __future__ import annotations

import asyncio
import heapq

import msgspec

from duepoint import clock as clocks
from duepoint.clock import Clock
from duepoint.controller.observed import UNKNOWN, Observed
from duepoint.controller.status import published, state, writequeue
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.status.writer import StatusWriter

#: A status that another client keeps changing is corrected at least this often.
_LONGEST_SECONDS = 600.0
_MOST_COUNTED = 16


class _Foreign(msgspec.Struct):
    """One object whose observed status was not ours.

    Attributes:
        status: as it was observed last; empty where ours was observed since.
        due: when it is to be written over.
        count: how often that was done of late, ``last`` time at that instant.
    """

    status: bytes = b""
    due: float = 0.0
    count: int = 0
    last: float = 0.0


class Corrections:
    """Observed statuses that differ from ours, by uid; decides when ours is written again.

    A status that differs from the published one is written over after two seconds, unless ours is
    seen before: what this process wrote is observed with a delay. Each further time the wait
    doubles, so two writers that disagree cost the API server little. The status of another
    installation is left alone: that one is reported, and not fought. No I/O.
    """

    def __init__(self, clock: Clock, mark: bytes) -> None:
        self._clock = clock
        self._mark = mark
        self._foreign: dict[str, _Foreign] = {}

    def observe(self, state: ScheduleState, seen: Observed) -> float | None:
        """Seconds until the status is to be written over; None = it is not."""
        if seen.status == UNKNOWN or state.is_published(seen.status):
            self.written(seen.uid)
            return None
        if self._mark not in seen.status and published.managed_by(seen.status):
            return None
        if seen.generation < state.generation:
            return None  # the object was restored
        foreign, now = self._foreign.setdefault(seen.uid, _Foreign()), self._clock.monotonic()
        if now - foreign.last > 2 * _LONGEST_SECONDS:
            foreign.count, foreign.last = 0, now
        wait: float = min(writequeue.STALENESS_SECONDS * 2**foreign.count, _LONGEST_SECONDS)
        foreign.status, foreign.due = seen.status, now + wait
        return wait

    def is_due(self, state: ScheduleState) -> bool:
        """Whether another status is published, and is to be written over now."""
        foreign, now = self._foreign.get(state.uid), self._clock.monotonic()
        if foreign is None or not foreign.status or now < foreign.due:
            return False
        if state.is_published(foreign.status):
            return False
        foreign.count, foreign.last = min(foreign.count + 1, _MOST_COUNTED), now
        return True

    def written(self, uid: str) -> None:
        """Our status is published."""
        if (foreign := self._foreign.get(uid)) is not None:
            foreign.status = b""

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._foreign.pop(uid, None)


#: Uids within so long a time share a place.
_WIDTH_US = 500_000
#: A status is looked at so long after its NEXT.
_GRACE_US = int(writequeue.STALENESS_SECONDS * 1e6)
#: In a burst nearly all of these are reported within moments, so they are looked at later.
_BURST_GRACE_US = 30_000_000
#: A Schedule without an active run for so long is idle, and its status does not wait longer.
_IDLE_SECONDS = 1.5
#: How many uids are gone through before other tasks have their turn.
_TOGETHER = 100


class TimeWheel:
    """Uids by when to look at them; instants in microseconds since the epoch."""

    def __init__(self) -> None:
        self._places: dict[int, dict[str, None]] = {}
        self._order: list[int] = []

    def put(self, uid: str, at_us: int) -> bool:
        """The uid is due then; True where that is the soonest now."""
        place = -(-at_us // _WIDTH_US)
        if place not in self._places:
            self._places[place] = {}
            heapq.heappush(self._order, place)
        self._places[place][uid] = None
        return self._order[0] == place

    def next_us(self) -> int | None:
        """When the soonest is due."""
        return self._order[0] * _WIDTH_US if self._order else None

    def take(self, now_us: int) -> list[str]:
        """Every uid that is due, taken from the wheel."""
        taken: list[str] = []
        while self._order and self._order[0] * _WIDTH_US <= now_us:
            taken += self._places.pop(heapq.heappop(self._order))
        return taken


class NextPassed:
    """The service; one for each term.

    Mostly a slot that fires is reported, and its status is written with the slot after it. Where no
    event comes (the slot waits for others to end, its request is open, its receiver is unreachable)
    NEXT would stay in the past. So the uids are kept by the half second in which NEXT passes, a few
    bytes each and once in each place, and the statuses are looked at then. A uid whose status was
    written meanwhile stands in another place too; that its former place is old shows when its time
    comes. The same wheel brings forward the status of a Schedule that has become idle.

    Args:
        per_second: how many statuses are looked at a second.
    """

    def __init__(
        self,
        *,
        states: ScheduleStates,
        writer: StatusWriter,
        per_second: int,
        clock: Clock,
    ) -> None:
        self._states = states
        self._writer = writer
        self._per_second = per_second
        self._clock = clock
        self._wheel = TimeWheel()
        #: Since when a Schedule has no active run, where that has not been written.
        self._idle_since: dict[str, float] = {}
        self._sooner = asyncio.Event()

    def watch(self, uid: str) -> None:
        """The status was published: look at it once its NEXT has passed."""
        known = self._states.get(uid)
        passes_us = None if known is None else state.next_passes_us(known)
        if passes_us is not None:
            self._put(uid, passes_us + _GRACE_US)

    def record_active(self, uid: str, before: int, after: int) -> None:
        """The Schedule had, and has, so many active runs."""
        if after:
            self._idle_since.pop(uid, None)
        elif before:
            self._idle_since[uid] = self._clock.monotonic()
            self._put(uid, self._clock.now_us() + int(_IDLE_SECONDS * 1e6))

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._idle_since.pop(uid, None)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._sooner.clear()
            next_us = self._wheel.next_us()
            wait = None if next_us is None else (next_us - self._clock.now_us()) / 1e6
            if wait is None or wait > 0:
                await clocks.wait_for(self._sooner, wait, self._clock)
                continue
            looks = 0
            for number, uid in enumerate(self._wheel.take(self._clock.now_us()), start=1):
                looks += self._look(uid)
                if looks >= self._per_second:  # changes of runs are not held up by these
                    looks = 0
                    await self._clock.sleep(1.0)
                elif number % _TOGETHER == 0:
                    await self._clock.sleep(0)

    def _put(self, uid: str, at_us: int) -> None:
        if self._wheel.put(uid, at_us):
            self._sooner.set()

    def _look(self, uid: str) -> bool:
        """Whether the status is looked at."""
        known = self._states.get(uid)
        if known is None:
            return False
        if self._writer.is_changed(uid):  # it is written soon, and watched again after that
            self._hurry_idle(uid)
            return False
        now_us = self._clock.now_us()
        passes_us = state.next_passes_us(known)
        if passes_us is None or passes_us > now_us:
            return False  # written meanwhile
        if self._writer.is_burst():
            self._wheel.put(uid, now_us + _BURST_GRACE_US)
            return False
        self._writer.look(uid, self._writer.rest(uid))
        return True

    def _hurry_idle(self, uid: str) -> None:
        since = self._idle_since.get(uid)
        if since is not None and self._clock.monotonic() - since >= _IDLE_SECONDS:
            del self._idle_since[uid]
            self._writer.hurry(uid)
            self._writer.changed(uid, self._writer.rest(uid))
