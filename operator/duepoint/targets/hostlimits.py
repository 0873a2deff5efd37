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
#: The longer no turn has come free, the further apart: none of them would get one, and each that
#: comes back and is put off again is work in which everybody else's slots wait.
_SPACING_OF_STILLNESS = 0.1
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

    def take(self, host: str, namespace: str) -> bool:
        """Whether there is a turn right now; then it is this caller's, who must ``leave``."""
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _Host(namespace, moved_at=self._clock.monotonic())
        if not known.waiting and self._has_room(known):
            self._give(known)
            return True
        self._forget_if_idle(host, known)
        return False

    async def enter(self, host: str, namespace: str) -> float:
        """0.0 = it is this caller's turn, who must ``leave``; else seconds to try again after."""
        while not self.take(host, namespace):
            known = self._hosts.get(host)
            if known is None:  # refused for the others' sake
                return _LEAST_SECONDS
            pace = known.pace(self._clock.monotonic())
            if pace * (len(known.waiting) + 1) > PATIENCE_SECONDS:
                return self._put_off(known)
            if await self._has_turn(known):
                break
        return 0.0

    def leave(self, host: str) -> None:
        """The turn is over."""
        known = self._hosts[host]
        known.put_off = 0
        if known.waiting or self._is_scarce(known):
            now = self._clock.monotonic()
            known.interval += _WEIGHT * (min(now - known.moved_at, 1.0) - known.interval)
            known.moved_at = now
        self._take_back(known)
        self._forget_if_idle(host, known)

    def _is_scarce(self, known: _Host) -> bool:
        """Whether somebody may have to wait: only then it matters how fast turns come free."""
        return known.running >= self._per_host or self._running >= self._half

    def _has_room(self, known: _Host) -> bool:
        running = known.running
        if running >= self._per_host:
            return False
        if self._running < self._half:
            return True
        if self._namespaces[known.namespace] >= self._of_a_namespace:
            return False
        return running < max(1, self._half // len(self._hosts))

    def _give(self, known: _Host) -> None:
        known.running += 1
        self._running += 1
        self._namespaces[known.namespace] += 1
        if self._is_scarce(known):
            known.moved_at = self._clock.monotonic()

    def _take_back(self, known: _Host) -> None:
        known.running -= 1
        self._running -= 1
        self._namespaces[known.namespace] -= 1
        while known.waiting and self._has_room(known):
            self._give(known)
            known.waiting.popleft().set_result(None)

    def _forget_if_idle(self, host: str, known: _Host) -> None:
        if known.running or known.waiting:
            return
        del self._hosts[host]
        if not self._namespaces[known.namespace]:
            del self._namespaces[known.namespace]

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
            self._take_back(known)

    def _put_off(self, known: _Host) -> float:
        """One after the other, no faster than turns come free; further off the longer it stands."""
        stood = self._clock.monotonic() - known.moved_at
        spacing = max(known.interval, stood * _SPACING_OF_STILLNESS, _SPACING_SECONDS)
        seconds = _LEAST_SECONDS + known.put_off * spacing % _MOST_SECONDS
        known.put_off += 1
        return seconds
