"""How many requests one receiver gets at a time, and what becomes of those above it.

A turn is waited for only where one is to be had soon: a burst at a receiver that answers passes
through in milliseconds. At one that hangs nobody waits, because whoever waits holds one of the
worker's places, and with them gone everybody else's slots would be late; such a delivery is put
off to when its turn would come. For the same reason the receivers share half of the places evenly
once those are scarce, and no namespace gets all of them. Per worker; nothing is shared.
"""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass, field

from duepoint import clock as clocks

#: A turn is waited for in memory for about so long.
PATIENCE_SECONDS = 0.25
#: Bounds of what a delivery is put off by.
_LEAST_SECONDS, _MOST_SECONDS = 0.2, 30.0
#: So far from one another do those come back that were put off.
_SPACING_SECONDS = 0.01
#: Weight of the newest interval between two turns that ended.
_WEIGHT = 0.1


@dataclass(slots=True)
class _Host:
    """Turns of one receiver: how many are taken, who waits, and how fast they come free."""

    namespace: str
    running: int = 0
    waiting: collections.deque[asyncio.Future[None]] = field(default_factory=collections.deque)
    interval: float = 0.0
    moved_at: float = 0.0
    put_off: int = 0

    def pace(self, now: float) -> float:
        """Seconds from one free turn to the next, as it looks now."""
        stood = now - self.moved_at
        return stood if stood > PATIENCE_SECONDS else self.interval


class HostLimits:
    """Gives turns."""

    def __init__(self, clock: clocks.Clock, *, per_host: int, places: int) -> None:
        """``places`` is how many attempts of any kind the worker makes at a time."""
        self._clock = clock
        self._per_host = per_host
        self._half = max(1, places // 2)
        self._of_a_namespace = max(1, places - places // 4)
        self._hosts: dict[str, _Host] = {}
        self._namespaces: collections.Counter[str] = collections.Counter()
        self._running = 0

    async def enter(self, host: str, namespace: str) -> float:
        """0.0 = it is this caller's turn, who must ``leave``; else seconds to try again after."""
        while True:
            now = self._clock.monotonic()
            known = self._hosts.get(host)
            if known is None:
                known = self._hosts[host] = _Host(namespace, moved_at=now)
            if not known.waiting and self._has_room(known):
                self._take(known)
                return 0.0
            expected = known.pace(now) * (len(known.waiting) + 1)
            if not known.running or expected > PATIENCE_SECONDS:
                return self._put_off(host, known)
            if await self._has_turn(known):
                return 0.0

    def leave(self, host: str) -> None:
        """The turn is over."""
        known = self._hosts[host]
        now = self._clock.monotonic()
        known.interval += _WEIGHT * (min(now - known.moved_at, 1.0) - known.interval)
        known.moved_at = now
        known.put_off = 0
        known.running -= 1
        self._running -= 1
        self._namespaces[known.namespace] -= 1
        self._give_next(known)
        if not known.running and not known.waiting:
            del self._hosts[host]
            if not self._namespaces[known.namespace]:
                del self._namespaces[known.namespace]

    def _has_room(self, known: _Host) -> bool:
        running = known.running
        if running >= self._per_host:
            return False
        if self._running < self._half:
            return True
        if self._namespaces[known.namespace] >= self._of_a_namespace:
            return False
        return running < max(1, self._half // len(self._hosts))

    def _take(self, known: _Host) -> None:
        known.running += 1
        known.moved_at = self._clock.monotonic()
        self._running += 1
        self._namespaces[known.namespace] += 1

    async def _has_turn(self, known: _Host) -> bool:
        """Wait for a turn as long as patience lasts."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        known.waiting.append(turn)
        try:
            await asyncio.wait({turn}, timeout=PATIENCE_SECONDS)
        except asyncio.CancelledError:
            self._give_up(known, turn)
            raise
        if not turn.done():
            known.waiting.remove(turn)
        return turn.done()

    def _give_up(self, known: _Host, turn: asyncio.Future[None]) -> None:
        """Whoever waited was cancelled: the turn, if it was given already, is somebody else's."""
        if not turn.done():
            known.waiting.remove(turn)
        else:
            known.running -= 1
            self._running -= 1
            self._namespaces[known.namespace] -= 1
            self._give_next(known)

    def _give_next(self, known: _Host) -> None:
        while known.waiting and self._has_room(known):
            self._take(known)
            known.waiting.popleft().set_result(None)

    def _put_off(self, host: str, known: _Host) -> float:
        """One after the other, no faster than turns come free; further off the longer it stands."""
        spacing = max(known.interval, _SPACING_SECONDS)
        seconds = _LEAST_SECONDS + known.put_off * spacing % _MOST_SECONDS
        known.put_off += 1
        if not known.running and not known.waiting:  # refused for the others' sake
            del self._hosts[host]
        return seconds
