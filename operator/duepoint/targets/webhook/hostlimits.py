"""How many requests one receiver gets at a time, and what becomes of those above it.

A turn is waited for only where one is to be had soon: a burst at a receiver that answers passes
through in milliseconds. At one that hangs no delivery waits, because it would hold one of the
worker's places; such a delivery is put off to when its turn would come (``pace``). For the same
reason the receivers of a namespace share two thirds of what it may have evenly once those are
scarce, and no namespace gets more than its share of all (``duepoint.shares``): what one namespace
calls takes nothing from another one's receivers. Per worker; nothing is shared.
"""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass, field

from duepoint import clock as clocks
from duepoint import shares
from duepoint.targets import pace


@dataclass(slots=True)
class _Host:
    """Turns of one receiver: how many are taken, who waits, and how fast they come free."""

    namespace: str
    pace: pace.Pace
    running: int = 0
    waiting: collections.deque[asyncio.Future[None]] = field(default_factory=collections.deque)


class HostLimits:
    """Gives turns."""

    def __init__(self, clock: clocks.Clock, *, per_host: int, places: int) -> None:
        """``places`` is how many attempts of this kind the worker makes at a time."""
        self._clock = clock
        self._per_host = per_host
        self._hosts: dict[str, _Host] = {}
        self._shares: shares.Shares[str] = shares.Shares(places)
        #: Receivers of each namespace that are called now.
        self._called: collections.Counter[str] = collections.Counter()

    def take(self, host: str, namespace: str) -> bool:
        """Whether there is a turn right now; then it is this caller's, who must ``leave``."""
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _Host(namespace, pace.Pace(self._clock.monotonic()))
            self._called[namespace] += 1
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
                return pace.LEAST_SECONDS
            now = self._clock.monotonic()
            if known.pace.seconds_to_wait(len(known.waiting), now) > pace.PATIENCE_SECONDS:
                return known.pace.put_off(now)
            if await self._has_turn(host, known):
                break
        return 0.0

    def leave(self, host: str) -> None:
        """The turn is over."""
        known = self._hosts[host]
        is_scarce = bool(known.waiting) or self._is_scarce(known)
        known.pace.note_free(self._clock.monotonic(), is_scarce=is_scarce)
        self._take_back(known)
        self._forget_if_idle(host, known)

    def _is_scarce(self, known: _Host) -> bool:
        """Whether a delivery may have to wait: only then it matters how fast turns come free."""
        if known.running >= self._per_host:
            return True
        return self._shares.held(known.namespace) >= self._easy(known.namespace)

    def _easy(self, namespace: str) -> int:
        """Up to so many the receivers of a namespace need not share."""
        return max(1, self._shares.most(namespace) * 2 // 3)

    def _has_room(self, known: _Host) -> bool:
        running, namespace = known.running, known.namespace
        if running >= self._per_host or not self._shares.has_room(namespace):
            return False
        easy = self._easy(namespace)
        if self._shares.held(namespace) < easy:
            return True
        return running < max(1, easy // self._called[namespace])

    def _give(self, known: _Host) -> None:
        known.running += 1
        self._shares.take(known.namespace)
        if self._is_scarce(known):
            known.pace.moved_at = self._clock.monotonic()

    def _take_back(self, known: _Host) -> None:
        known.running -= 1
        self._shares.give_back(known.namespace)
        while known.waiting and self._has_room(known):
            self._give(known)
            known.waiting.popleft().set_result(None)

    def _forget_if_idle(self, host: str, known: _Host) -> None:
        if known.running or known.waiting:
            return
        del self._hosts[host]
        self._called[known.namespace] -= 1
        if not self._called[known.namespace]:
            del self._called[known.namespace]

    async def _has_turn(self, host: str, known: _Host) -> bool:
        """Wait for a turn as long as patience lasts."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        known.waiting.append(turn)
        try:
            await asyncio.wait({turn}, timeout=pace.PATIENCE_SECONDS)
        except asyncio.CancelledError:
            self._give_up(known, turn)
            self._forget_if_idle(host, known)
            raise
        if not turn.done():
            known.waiting.remove(turn)
        return turn.done()

    def _give_up(self, known: _Host, turn: asyncio.Future[None]) -> None:
        """The waiting delivery was cancelled: a turn that it was given goes to the next one."""
        if not turn.done():
            known.waiting.remove(turn)
        else:
            self._take_back(known)
