"""Whether a webhook may be sent now: its receiver's circuit, turn, and whether it is there at all.

One place asks the three of them in order and says what becomes of a delivery that may not: one
that waits for a circuit or a turn is no attempt and uses none up; one whose receiver is gone is
not made until the Schedule is edited. A run by hand goes to a receiver that is gone all the same,
and if it is delivered the Schedule goes on: that is how to resume without an edit.

The response also says how the receiver is: one that answers is well, however much it refuses; busy
(408, 425, 429) says nothing; 5xx, silence and broken connections are failures.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.webhook import circuitbreaker, hostlimits, response

#: A run by hand, and nothing else, is sent to a receiver that is gone.
_BY_HAND = "Manual"
_BUSY = frozenset({408, 425, 429})
_SECOND_US = 1_000_000
#: A probe is held a little longer than it may take.
_PROBE_MARGIN_SECONDS = 2.0


@dataclass(slots=True)
class Admitted:
    """A delivery that may be made; ``Admission.leave`` has to follow."""

    host: str
    passed: circuitbreaker.Pass


class Admission:
    """Lets deliveries through."""

    def __init__(
        self, limits: hostlimits.HostLimits, breaker: circuitbreaker.CircuitBreaker | None = None
    ) -> None:
        """Without a breaker nothing is shared, and nothing waits but for its turn."""
        self._limits = limits
        self._breaker = breaker

    def at_once(self, firing: target.Firing, webhook: actions.WebhookAction) -> Admitted | None:
        """The entry where nothing is known that speaks against it and there is a turn."""
        host = circuitbreaker.host_of(firing.namespace, webhook.url, webhook.service)
        breaker = self._breaker
        if breaker is not None and not breaker.has_nothing_against(host, firing.uid):
            return None
        return (
            Admitted(host, circuitbreaker.PASS)
            if self._limits.take(host, firing.namespace)
            else None
        )

    async def enter(
        self, firing: target.Firing, webhook: actions.WebhookAction, now_us: int
    ) -> Admitted | outcome.Outcome:
        """An entry, or what becomes of the delivery without an attempt."""
        host = circuitbreaker.host_of(firing.namespace, webhook.url, webhook.service)
        if self._breaker is not None:
            await self._breaker.freshen()
            if firing.trigger != _BY_HAND and self._breaker.is_gone(firing.uid, firing.generation):
                return _gone(firing)
            if (wait := self._breaker.wait_of(host)) is not None:
                return _circuit_open(host, wait, firing, webhook, now_us)
        seconds = await self._limits.enter(host, firing.namespace)
        if seconds:
            return _no_turn(host, seconds, firing, webhook, now_us)
        if self._breaker is None:
            return Admitted(host, circuitbreaker.PASS)
        return await self._admit(host, firing, webhook, now_us)

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
            self._breaker.note(entry.host, entry.passed, succeeded, said)
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

    async def _admit(
        self, host: str, firing: target.Firing, webhook: actions.WebhookAction, now_us: int
    ) -> Admitted | outcome.Outcome:
        assert self._breaker is not None  # noqa: S101 - the caller has looked
        admitted: circuitbreaker.Pass | circuitbreaker.Wait | None = None
        try:
            hold_seconds = webhook.timeout_seconds + _PROBE_MARGIN_SECONDS
            admitted = await self._breaker.admit(host, hold_seconds)
        finally:
            if not isinstance(admitted, circuitbreaker.Pass):
                self._limits.leave(host)
        if isinstance(admitted, circuitbreaker.Wait):
            return _circuit_open(host, admitted, firing, webhook, now_us)
        return Admitted(host, admitted)


def verdict(answer: response.Answer | target.Trouble, *, delivered: bool) -> bool | None:
    """Whether the receiver is well, by what it said or did not say to a request."""
    if isinstance(answer, target.Trouble):
        return None if answer.final else False
    if delivered:
        return True
    if answer.status in _BUSY:
        return None
    return answer.status < 500


def _gone(firing: target.Firing) -> outcome.Outcome:
    message = (
        "the receiver said that it is gone (410); edit the Schedule, or run it by hand once the "
        "receiver is there again"
    )
    if firing.attempt > 1:
        return outcome.Rejected(reason=Reason.ENDPOINT_GONE, message=message)
    return outcome.Skip(reason=Reason.ENDPOINT_GONE, message=message)


def _circuit_open(
    host: str,
    wait: circuitbreaker.Wait,
    firing: target.Firing,
    webhook: actions.WebhookAction,
    now_us: int,
) -> outcome.Retry:
    """The message stays the same for as long as the cause does: each change is a write."""
    message = (
        f"{_spoken(host)}: {wait.why}; deliveries wait and one at a time tries it, until one "
        "succeeds"
    )
    return _waiting(Reason.CIRCUIT_OPEN, message, wait.seconds, firing, webhook, now_us)


def _no_turn(
    host: str,
    seconds: float,
    firing: target.Firing,
    webhook: actions.WebhookAction,
    now_us: int,
) -> outcome.Retry:
    message = f"{_spoken(host)} has as many requests open as it may have; the delivery waits"
    return _waiting(Reason.RECEIVER_BUSY, message, seconds, firing, webhook, now_us)


def _waiting(  # noqa: PLR0917 - called from here alone
    reason: Reason,
    message: str,
    seconds: float,
    firing: target.Firing,
    webhook: actions.WebhookAction,
    now_us: int,
) -> outcome.Retry:
    """Not an attempt; the last look falls just inside ``maxAge``."""
    room_us = firing.due_us + webhook.retry.max_age_us - now_us - _SECOND_US
    wish_us = int(seconds * _SECOND_US)
    return outcome.Retry(
        reason=reason,
        message=message,
        after_us=max(min(wish_us, room_us), _SECOND_US // 10),
        started=False,
        counted=False,
    )


def _name(host: str) -> str:
    """The name of a receiver's host."""
    parts = host.split(" ")
    return parts[2] if len(parts) == 4 else host


def _spoken(host: str) -> str:
    """A receiver's name as people write it."""
    _, _, rest = host.partition(" ")
    parts = rest.split(" ")
    return f"{parts[0]}://{parts[1]}:{parts[2]}" if len(parts) == 3 else rest
