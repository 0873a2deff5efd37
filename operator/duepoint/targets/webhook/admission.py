"""Whether a webhook may be sent now: its receiver's circuit, turn, and whether it is there at all.

``Admission`` asks the three of them in order and says what becomes of a delivery that may not: one
that waits for a circuit or a turn is no attempt and uses none up; one whose receiver is gone is
not made until the Schedule is edited. What a delivery needs is read after ``refusal`` has asked for
circuit and receiver, so that a missing Secret uses up no attempt while nothing may be sent, and
before ``enter`` gives the turn, so that no read holds one. A run by hand goes to a receiver that is
gone all the same, and if it is delivered the Schedule goes on: that is how to resume without an
edit.

The receivers of a namespace share the places that it may have (``targets.places``), and none of
them has more than its limit: one that hangs takes nothing from the others. Places are this worker's
alone.

The response also says how the receiver is: one that answers is well, however much it refuses; busy
(408, 425, 429) says nothing; 5xx, silence and broken connections are failures.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import clock as clocks
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import places as receiverplaces
from duepoint.targets import target
from duepoint.targets.webhook import circuitbreaker, response

#: Requests to one receiver at a time, and attempts of a worker, by default.
LIMIT_PER_HOST = 32
PLACES = 256
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
    """Lets deliveries through.

    Args:
        places: how many webhooks the worker sends at a time; a namespace alone may have three
            quarters of these.
        breaker: None = nothing is shared, and nothing waits but for its turn.
    """

    def __init__(
        self,
        clock: clocks.Clock,
        *,
        per_host: int = LIMIT_PER_HOST,
        places: int = PLACES,
        breaker: circuitbreaker.CircuitBreaker | None = None,
    ) -> None:
        self._clock = clock
        self._per_host = per_host
        self._of_namespace = max(1, places * 3 // 4)
        #: Of the receivers of each namespace that are called now.
        self._places: dict[str, receiverplaces.ReceiverPlaces] = {}
        self._breaker = breaker

    def at_once(self, firing: target.Firing, webhook: actions.WebhookAction) -> Admitted | None:
        """The entry where nothing is known that speaks against it and there is a turn."""
        host = circuitbreaker.host_of(firing.namespace, webhook.url, webhook.service)
        if self._breaker is not None and not self._breaker.has_nothing_against(host, firing.uid):
            return None
        return Admitted(host) if self._receivers(firing.namespace).take(host) else None

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
        seconds = await self._receivers(firing.namespace).enter(host)
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
                self._leave(host, firing.namespace)
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
        self._leave(entry.host, firing.namespace)
        if self._breaker is not None:
            # The message of the circuit names the receiver already.
            said = cause.removeprefix(f"{_name(entry.host)}: ")
            self._breaker.note(entry.host, succeeded, said, is_probe=entry.is_probe)
            if succeeded and firing.trigger == _BY_HAND:
                self._breaker.note_gone(firing.uid, 0)

    def _receivers(self, namespace: str) -> receiverplaces.ReceiverPlaces:
        """The places that the receivers of a namespace share."""
        found = self._places.get(namespace)
        if found is None:
            found = self._places[namespace] = receiverplaces.ReceiverPlaces(
                self._clock, self._of_namespace, most=self._per_host
            )
        return found

    def _leave(self, host: str, namespace: str) -> None:
        places = self._places[namespace]
        places.leave(host)
        if places.is_idle:
            del self._places[namespace]

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
