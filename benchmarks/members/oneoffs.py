"""One-offs that are created, moved and deleted through several HTTP APIs, and when each should run.

Only answered requests count: a creation, move or deletion without an answer (after the client's
own repetitions) may or may not have happened. A move or deletion that was answered less than a
second before the run may come too late for it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duepoint.client import AsyncSetClient, MemberSpec
from duepoint.client import problems as client_problems

#: Dues lie between these from their creation.
_SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 6.0, 60.0
#: The shares of one-offs that are moved and deleted.
_MOVED_SHARE, _DELETED_SHARE = 0.05, 0.05
#: Only one-offs that are due later than this are moved or deleted.
_LEAST_LEFT_SECONDS = 15.0
#: A change that is answered this long before the run must take effect.
_IN_TIME_US = 1_000_000
_MOST_AT_ONCE = 64


@dataclass(slots=True)
class OneOff:
    """The state of one one-off, as the client knows it.

    Attributes:
        sure: its creation was answered.
        allowed_us: dues at which it may run; there is one more while a move was not answered.
        is_removed: its deletion was answered in time.
        is_open: it may run or not.
        ran_us: the dues at which it did.
    """

    due_us: int
    sure: bool = False
    allowed_us: set[int] = field(default_factory=set)
    is_removed: bool = False
    is_open: bool = False
    is_changed: bool = False
    ran_us: list[int] = field(default_factory=list)


class OneOffs:
    """Creates, moves and deletes one-offs, and compares them with what ran.

    Args:
        sets: by name, each as the client of each API.
    """

    def __init__(self, sets: Mapping[str, Sequence[AsyncSetClient]]) -> None:
        self._sets = sets
        self._known: dict[str, OneOff] = {}
        self._number = 0
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def write(self, rate: float, seconds: float) -> None:
        """Create one-offs at a rate, and change some; return when every request was answered."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while (passed := time.monotonic() - began) < seconds:
                if self._number >= passed * rate:
                    await asyncio.sleep(0.005)
                    continue
                await self._room.acquire()
                self._number += 1
                group.create_task(self._live(f"one-off-{self._number}", self._number))

    async def _live(self, name: str, number: int) -> None:
        """Create a one-off, and move or delete some of them."""
        try:
            set_name = tuple(self._sets)[number % len(self._sets)]
            through = self._sets[set_name]
            api = through[number // len(self._sets) % len(through)]
            due_us = _in(random.uniform(_SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS))
            one = self._known[name] = OneOff(due_us, allowed_us={due_us})
            try:
                await api.put(name, MemberSpec(at=_text(due_us), payload={"n": name}))
            except client_problems.ClientError:
                one.is_open = True
                return
            one.sure = True
        finally:
            self._room.release()
        change = random.random()
        if due_us < _in(_LEAST_LEFT_SECONDS) or change > _MOVED_SHARE + _DELETED_SHARE:
            return
        async with self._room:
            if change < _MOVED_SHARE:
                await self._move(api, name, one)
            else:
                await self._delete(api, name, one)

    async def _move(self, api: AsyncSetClient, name: str, one: OneOff) -> None:
        later_us = _in(random.uniform(_LEAST_LEFT_SECONDS, LONGEST_WAIT_SECONDS))
        was_us = one.due_us
        one.allowed_us.add(later_us)
        one.is_changed = True
        try:
            await api.patch(name, {"at": _text(later_us)})
        except client_problems.ClientError:
            return
        one.due_us = later_us
        if time.time_ns() // 1000 < was_us - _IN_TIME_US:
            one.allowed_us.discard(was_us)

    async def _delete(self, api: AsyncSetClient, name: str, one: OneOff) -> None:
        one.is_changed = True
        try:
            await api.delete(name)
        except client_problems.ClientError:
            one.is_open = True
            return
        one.is_removed = time.time_ns() // 1000 < one.due_us - _IN_TIME_US
        one.is_open = not one.is_removed

    def arrived(self, name: str, slot_us: int) -> None:
        """Note that a one-off ran for this slot."""
        self._known[name].ran_us.append(slot_us)

    def arrived_text(self, name: str, slot: str) -> None:
        """Note that a one-off ran for this slot, given as RFC 3339."""
        self.arrived(name, round(dt.datetime.fromisoformat(slot).timestamp() * 1_000_000))

    @property
    def acknowledged(self) -> int:
        """The number of creations that were answered."""
        return sum(one.sure for one in self._known.values())

    @property
    def unknown(self) -> int:
        """The number of one-offs that may run or not, because an answer was missing or late."""
        return sum(one.is_open for one in self._known.values())

    @property
    def changed(self) -> int:
        """The number of moves and deletions."""
        return sum(one.is_changed for one in self._known.values())

    def verdict(self) -> tuple[int, int, int]:
        """Return how many were lost, ran twice, and ran in spite of a move or deletion."""
        lost = doubled = wrongly = 0
        for one in self._known.values():
            ran = set(one.ran_us)
            doubled += len(one.ran_us) > (len(one.allowed_us) if one.is_changed else 1)
            doubled += len(ran) < len(one.ran_us)
            wrongly += bool(one.is_removed and ran) or bool(ran - one.allowed_us)
            lost += one.sure and not one.is_open and not one.is_removed and not ran
        return lost, doubled, wrongly


def _in(seconds: float) -> int:
    """Return the time in so many seconds: microseconds of UTC, in whole milliseconds."""
    return (time.time_ns() + int(seconds * 1e9)) // 1_000_000 * 1_000


def _text(instant_us: int) -> str:
    at = dt.datetime.fromtimestamp(instant_us / 1_000_000, dt.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
