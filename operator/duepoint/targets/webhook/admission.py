"""Whether a webhook may be sent now: its receiver's circuit, turn, and whether it is there at all.

``Admission`` asks the three of them in order and says what becomes of a delivery that may not: one
that waits for a circuit or a turn is no attempt and uses none up; one whose receiver is gone is
not made until the Schedule is edited. What a delivery needs is read after ``refusal`` has asked for
circuit and receiver, so that a missing Secret uses up no attempt while nothing may be sent, and
before ``enter`` gives the turn, so that no read holds one. A run by hand goes to a receiver that is
gone all the same, and if it is delivered the Schedule goes on: that is how to resume without an
edit.

``HostLimits`` gives turns. One is waited for only where it is to be had soon: a burst at a receiver
that answers passes through. At one that hangs no delivery waits, because it would hold one of the
worker's places; such a delivery is put off to when its turn would come (``shares.Pace``).
For the same reason the receivers of a namespace share two thirds of what it may have evenly once
those are scarce, and no namespace gets more than its share of all (``duepoint.shares``): what one
namespace calls takes nothing from another one's receivers. Turns are this worker's alone.

The response also says how the receiver is: one that answers is well, however much it refuses; busy
(408, 425, 429) says nothing; 5xx, silence and broken connections are failures.
"""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass, field

from duepoint import clock as clocks
from duepoint import shares
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.webhook import circuitbreaker, response

#: A run by hand, and nothing else, is sent to a receiver that is gone.
_BY_HAND = "Manual"
_BUSY = frozenset({408, 425, 429})
_SECOND_US = 1_000_000
#: A probe is held a little longer than it may take.
_PROBE_MARGIN_SECONDS = 2.0


@dataclass(slots=True)
class Admitted:
    """A delivery that may be made; ``Admission.leave`` has to follow.

    Attributes:
        is_probe: it decides about the circuit.
    """

    host: str
    is_probe: bool = False


class Admission:
    """Lets deliveries through."""

    def __init__(
        self, limits: HostLimits, breaker: circuitbreaker.CircuitBreaker | None = None
    ) -> None:
        """Without a breaker nothing is shared, and nothing waits but for its turn."""
        self._limits = limits
        self._breaker = breaker

    def at_once(self, firing: target.Firing, webhook: actions.WebhookAction) -> Admitted | None:
        """The entry where nothing is known that speaks against it and there is a turn."""
        host = circuitbreaker.host_of(firing.namespace, webhook.url, webhook.service)
        if self._breaker is not None and not self._breaker.has_nothing_against(host, firing.uid):
            return None
        has_turn = self._limits.take(host, firing.namespace)
        return Admitted(host) if has_turn else None

    async def refusal(
        self, firing: target.Firing, webhook: actions.WebhookAction, now_us: int
    ) -> outcome.Outcome | None:
        """What becomes of the delivery where circuit or receiver certainly forbid it."""
        if self._breaker is None:
            return None
        await self._breaker.freshen()
        if firing.trigger != _BY_HAND and self._breaker.is_gone(firing.uid, firing.generation):
            return _gone(firing)
        host = circuitbreaker.host_of(firing.namespace, webhook.url, webhook.service)
        wait = self._breaker.wait_of(host)
        return (
            None if wait is None else _circuit_open(host, wait, _last_us(firing, webhook, now_us))
        )

    async def enter(
        self, firing: target.Firing, webhook: actions.WebhookAction, now_us: int
    ) -> Admitted | outcome.Outcome:
        """An entry, or what becomes of the delivery without an attempt."""
        if (refused := await self.refusal(firing, webhook, now_us)) is not None:
            return refused
        host = circuitbreaker.host_of(firing.namespace, webhook.url, webhook.service)
        last_us = _last_us(firing, webhook, now_us)
        seconds = await self._limits.enter(host, firing.namespace)
        if seconds:
            message = (
                f"{_url_of(host)} has as many requests open as it may have; the delivery waits"
            )
            return _waiting(Reason.RECEIVER_BUSY, message, seconds, last_us)
        if self._breaker is None:
            return Admitted(host)
        admitted: bool | circuitbreaker.Wait | None = None
        try:
            hold_seconds = webhook.timeout_seconds + _PROBE_MARGIN_SECONDS
            admitted = await self._breaker.admit(host, hold_seconds)
        finally:
            if not isinstance(admitted, bool):
                self._limits.leave(host)
        if isinstance(admitted, circuitbreaker.Wait):
            return _circuit_open(host, admitted, last_us)
        return Admitted(host, admitted)

    def leave(
        self,
        entry: Admitted,
        firing: target.Firing,
        succeeded: bool | None,  # noqa: FBT001 - the outcome
        cause: str = "",
    ) -> None:
        """The delivery is over; None where it says nothing of the receiver, or was not made.

        Args:
            cause: why it failed, in words of ours.
        """
        self._limits.leave(entry.host)
        if self._breaker is not None:
            # The message of the circuit names the receiver already.
            said = cause.removeprefix(f"{_name(entry.host)}: ")
            self._breaker.note(entry.host, succeeded, said, is_probe=entry.is_probe)
            if succeeded and firing.trigger == _BY_HAND:
                self._breaker.note_gone(firing.uid, 0)

    def note_gone(self, firing: target.Firing) -> None:
        """The receiver said that it is gone for good."""
        if self._breaker is not None:
            self._breaker.note_gone(firing.uid, firing.generation)

    async def close(self) -> None:
        """Send the other workers what is left to report."""
        if self._breaker is not None:
            await self._breaker.close()


def verdict(answer: response.Answer | target.Trouble, *, delivered: bool) -> bool | None:
    """Whether the receiver is well, by what it said or did not say to a request."""
    if isinstance(answer, target.Trouble):
        return None if answer.final or answer.unsent else False
    if delivered:
        return True
    return None if answer.status in _BUSY else answer.status < 500


def _gone(firing: target.Firing) -> outcome.Outcome:
    message = (
        "the receiver said that it is gone (410); edit the Schedule, or run it by hand once the "
        "receiver is there again"
    )
    kind = outcome.Rejected if firing.attempt > 1 else outcome.Skip
    return kind(reason=Reason.ENDPOINT_GONE, message=message)


def _circuit_open(host: str, wait: circuitbreaker.Wait, last_us: int) -> outcome.Retry:
    """The message stays the same for as long as the cause does: each change is a write."""
    message = (
        f"{_url_of(host)}: {wait.why}; deliveries wait and one at a time tries it, until one "
        "succeeds"
    )
    return _waiting(Reason.CIRCUIT_OPEN, message, wait.seconds, last_us)


def _last_us(firing: target.Firing, webhook: actions.WebhookAction, now_us: int) -> int:
    """In how many microseconds the last look falls, which is inside ``maxAge``."""
    return firing.due_us + webhook.retry.max_age_us - now_us - _SECOND_US


def _waiting(reason: Reason, message: str, seconds: float, last_us: int) -> outcome.Retry:
    """Not an attempt; the next look is no later than the last one."""
    return outcome.Retry(
        reason=reason,
        message=message,
        after_us=max(min(int(seconds * _SECOND_US), last_us), _SECOND_US // 10),
        started=False,
        counted=False,
    )


def _name(host: str) -> str:
    """The name of a receiver's host."""
    parts = host.split(" ")
    return parts[2] if len(parts) == 4 else host


def _url_of(host: str) -> str:
    """A receiver's name as people write it."""
    _, _, rest = host.partition(" ")
    parts = rest.split(" ")
    return f"{parts[0]}://{parts[1]}:{parts[2]}" if len(parts) == 3 else rest


# -- turns -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Host:
    """Turns of one receiver: how many are taken, who waits, and how fast they come free."""

    namespace: str
    pace: shares.Pace
    running: int = 0
    waiting: collections.deque[asyncio.Future[None]] = field(default_factory=collections.deque)


class HostLimits:
    """Gives turns.

    Args:
        places: how many attempts of this kind the worker makes at a time.
    """

    def __init__(self, clock: clocks.Clock, *, per_host: int, places: int) -> None:
        self._clock = clock
        self._per_host = per_host
        self._hosts: dict[str, _Host] = {}
        self._shares: shares.Shares[str] = shares.Shares(places)
        #: Receivers of each namespace that are called now.
        self._called: collections.Counter[str] = collections.Counter()

    def take(self, host: str, namespace: str) -> bool:
        """Whether there is a turn right now; then it is this caller's, who must ``leave``."""
        turns = self._hosts.get(host)
        if turns is None:
            turns = self._hosts[host] = _Host(namespace, shares.Pace(self._clock.monotonic()))
            self._called[namespace] += 1
        if not turns.waiting and self._has_room(turns):
            self._give(turns)
            return True
        self._forget_if_idle(host, turns)
        return False

    async def enter(self, host: str, namespace: str) -> float:
        """0.0 = it is this caller's turn, who must ``leave``; else seconds to try again after."""
        while not self.take(host, namespace):
            turns = self._hosts.get(host)
            if turns is None:  # refused for the others' sake
                return shares.LEAST_SECONDS
            now = self._clock.monotonic()
            patience = turns.pace.patience(len(turns.waiting), now)
            if not patience:
                return turns.pace.put_off(now)
            if await self._has_turn(host, turns, patience):
                break
        return 0.0

    def leave(self, host: str) -> None:
        """The turn is over."""
        turns = self._hosts[host]
        if turns.waiting or self._is_scarce(turns):
            turns.pace.note_free(self._clock.monotonic(), is_scarce=True)
        self._take_back(turns)
        self._forget_if_idle(host, turns)

    def _is_scarce(self, turns: _Host) -> bool:
        """Whether a delivery may have to wait: only then it matters how fast turns come free."""
        if turns.running >= self._per_host:
            return True
        return self._shares.held(turns.namespace) >= self._easy(turns.namespace)

    def _easy(self, namespace: str) -> int:
        """Up to so many the receivers of a namespace need not share."""
        return max(1, self._shares.most(namespace) * 2 // 3)

    def _has_room(self, turns: _Host) -> bool:
        running, namespace = turns.running, turns.namespace
        if running >= self._per_host or not self._shares.has_room(namespace):
            return False
        easy = self._easy(namespace)
        if self._shares.held(namespace) < easy:
            return True
        return running < max(1, easy // self._called[namespace])

    def _give(self, turns: _Host) -> None:
        turns.running += 1
        self._shares.take(turns.namespace)
        if self._is_scarce(turns):
            turns.pace.moved_at = self._clock.monotonic()

    def _take_back(self, turns: _Host) -> None:
        turns.running -= 1
        self._shares.give_back(turns.namespace)
        while turns.waiting and self._has_room(turns):
            self._give(turns)
            turns.waiting.popleft().set_result(None)

    def _forget_if_idle(self, host: str, turns: _Host) -> None:
        if turns.running or turns.waiting:
            return
        del self._hosts[host]
        self._called[turns.namespace] -= 1
        if not self._called[turns.namespace]:
            del self._called[turns.namespace]

    async def _has_turn(self, host: str, turns: _Host, patience: float) -> bool:
        """Wait for a turn for so many seconds."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns.waiting.append(turn)
        try:
            await asyncio.wait({turn}, timeout=patience)
        except asyncio.CancelledError:
            if turn.done():  # it goes to the next one
                self._take_back(turns)
            else:
                turns.waiting.remove(turn)
            self._forget_if_idle(host, turns)
            raise
        if not turn.done():
            turns.waiting.remove(turn)
        return turn.done()
