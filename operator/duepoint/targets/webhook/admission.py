"""Admission of webhooks: the receiver must not be gone, its circuit closed, and a place free.

``Admission`` checks the three in this order and decides what becomes of a refused delivery. One
that waits for a circuit or a place does not count as an attempt. One whose receiver is gone (410)
is not sent until the Schedule is edited. A delivery reads its Secrets after ``refusal`` has checked
circuit and receiver, so that a missing Secret uses up no attempt while nothing may be sent, and
before ``enter`` takes a place, so that no read occupies one. A run by hand goes even to a receiver
that is gone. If it is delivered, the Schedule goes on: that is how to resume without an edit.

The receivers of a namespace share its places (``targets.places``), and each has a limit of its
own, so that one that hangs takes nothing from the others. Each worker has its own places.

The response also shows whether the receiver is healthy. Any answer below 500 means that it is,
even a refusal; busy (408, 425, 429) proves nothing; 5xx, silence and broken connections are
failures. A worker counts its own calls of a failing receiver and opens the circuit for all workers
(``delayqueue.circuits``). ``CircuitBreaker`` keeps a copy of all circuits, no older than a second
while webhooks are sent, so that a delivery to a healthy receiver needs no request to Redis. While a
circuit is open nothing is sent; once it may be probed, a single delivery among all workers is the
probe. If Redis cannot be reached, every delivery passes: a worker that can claim can reach it.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass

import yarl

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.delayqueue import circuits
from duepoint.net import httpclient
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from duepoint.targets import places as receiverplaces

#: Requests to one receiver at a time, and attempts of a worker, by default.
LIMIT_PER_HOST = 32
PLACES = 256
#: A run by hand, and nothing else, is sent to a receiver that is gone.
_BY_HAND = "Manual"
_BUSY = frozenset({408, 425, 429})
_SECOND_US = 1_000_000
#: How much longer than its timeout a probe keeps others from probing.
_PROBE_MARGIN_SECONDS = 2.0


@dataclass(slots=True)
class Admitted:
    """A delivery that may be sent; ``Admission.leave`` has to follow.

    Attributes:
        is_probe: whether its outcome closes the circuit or keeps it open.
    """

    host: str
    is_probe: bool


class Admission:
    """Decides which deliveries may be sent now.

    Args:
        places: how many webhooks the worker sends at a time; a single namespace may have three
            quarters of these.
        breaker: None = there are no circuits, and deliveries wait for places only.
    """

    def __init__(
        self,
        clock: clocks.Clock,
        *,
        per_host: int = LIMIT_PER_HOST,
        places: int = PLACES,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._clock = clock
        self._per_host = per_host
        self._of_namespace = max(1, places * 3 // 4)
        #: By namespace, for those with requests in flight.
        self._places: dict[str, receiverplaces.ReceiverPlaces] = {}
        self._breaker = breaker

    async def refusal(
        self, firing: target.Firing, webhook: actions.WebhookAction
    ) -> outcome.Outcome | None:
        """Return the outcome of a delivery that its circuit or a gone receiver forbids."""
        if self._breaker is None:
            return None
        await self._breaker.freshen()
        if firing.trigger != _BY_HAND and self._breaker.is_gone(firing.uid, firing.generation):
            return _gone(firing)
        host = host_of(firing.namespace, webhook.url, webhook.service)
        wait = self._breaker.wait_of(host)
        return None if wait is None else self._circuit_open(firing, webhook, host, wait)

    async def enter(
        self, firing: target.Firing, webhook: actions.WebhookAction
    ) -> Admitted | outcome.Outcome:
        """Admit a delivery, or return the outcome that it gets without an attempt."""
        if (refused := await self.refusal(firing, webhook)) is not None:
            return refused
        host = host_of(firing.namespace, webhook.url, webhook.service)
        places = self._places.get(firing.namespace)
        if places is None:
            places = self._places[firing.namespace] = receiverplaces.ReceiverPlaces(
                self._clock, self._of_namespace, most=self._per_host
            )
        if seconds := await places.enter(host):
            message = (
                f"{_url_of(host)} has as many requests open as it may have; the delivery waits"
            )
            return self._waiting(firing, webhook, Reason.RECEIVER_BUSY, message, seconds)
        if self._breaker is None:
            return Admitted(host, is_probe=False)
        admitted: bool | Wait | None = None
        try:
            hold_seconds = webhook.timeout_seconds + _PROBE_MARGIN_SECONDS
            admitted = await self._breaker.admit(host, hold_seconds)
        finally:
            if not isinstance(admitted, bool):
                self._leave(host, firing.namespace)
        if isinstance(admitted, Wait):
            return self._circuit_open(firing, webhook, host, admitted)
        return Admitted(host, admitted)

    def leave(
        self,
        entry: Admitted,
        firing: target.Firing,
        answer: httpclient.Response | target.Trouble | None,
        given: outcome.Outcome | None,
    ) -> None:
        """Give the place back and report the answer to the circuit breaker.

        ``answer`` and ``given``, its outcome, are None if nothing was sent.
        """
        self._leave(entry.host, firing.namespace)
        if self._breaker is None:
            return
        is_well: bool | None = None
        if isinstance(answer, target.Trouble):
            is_well = None if answer.final or answer.unsent else False
        elif isinstance(given, outcome.Delivered):
            is_well = True
        elif answer is not None and answer.status not in _BUSY:
            is_well = answer.status < 500
        # The message of the circuit names the receiver already.
        cause = given.message.removeprefix(f"{_name(entry.host)}: ") if given is not None else ""
        self._breaker.note(entry.host, is_well, cause, is_probe=entry.is_probe)
        if isinstance(given, outcome.Rejected) and given.reason is Reason.ENDPOINT_GONE:
            self._breaker.note_gone(firing.uid, firing.generation)
        elif is_well and firing.trigger == _BY_HAND:
            self._breaker.note_gone(firing.uid, 0)

    def _leave(self, host: str, namespace: str) -> None:
        places = self._places[namespace]
        places.leave(host)
        if places.is_idle:
            del self._places[namespace]

    async def close(self) -> None:
        """Finish the reports to the other workers that are under way."""
        if self._breaker is not None:
            await self._breaker.close()

    def _circuit_open(
        self, firing: target.Firing, webhook: actions.WebhookAction, host: str, wait: Wait
    ) -> outcome.Retry:
        """Delay a delivery; its message changes only with the cause, as each change is a write."""
        message = (
            f"{_url_of(host)}: {wait.why}; deliveries wait and one at a time tries it, until one "
            "succeeds"
        )
        return self._waiting(firing, webhook, Reason.CIRCUIT_OPEN, message, wait.seconds)

    def _waiting(
        self,
        firing: target.Firing,
        webhook: actions.WebhookAction,
        reason: Reason,
        message: str,
        seconds: float,
    ) -> outcome.Retry:
        """Return a retry that does not count as an attempt, the last one just inside ``maxAge``."""
        last_us = firing.due_us + webhook.retry.max_age_us - self._clock.now_us() - _SECOND_US
        return outcome.Retry(
            reason=reason,
            message=message,
            after_us=max(min(int(seconds * _SECOND_US), last_us), _SECOND_US // 10),
            started=False,
            counted=False,
        )


def _gone(firing: target.Firing) -> outcome.Outcome:
    message = (
        "the receiver said that it is gone (410); edit the Schedule, or run it by hand once the "
        "receiver is back"
    )
    kind = outcome.Rejected if firing.attempt > 1 else outcome.Skip
    return kind(reason=Reason.ENDPOINT_GONE, message=message)


def _name(host: str) -> str:
    """Return the host name of a receiver."""
    parts = host.split(" ")
    return parts[2] if len(parts) == 4 else host


def _url_of(host: str) -> str:
    """Return a receiver as a URL, for messages."""
    _, _, rest = host.partition(" ")
    parts = rest.split(" ")
    return f"{parts[0]}://{parts[1]}:{parts[2]}" if len(parts) == 3 else rest


# -- circuits --------------------------------------------------------------------------------------

#: A copy of this age is read again, in the background of the delivery that notices it.
FRESH_SECONDS = 1.0
#: How long the very first delivery waits for the copy.
_FIRST_SECONDS = 0.5
#: Gap between the retries of deliveries that wait for a circuit, so that they do not come at once.
_SPACING_SECONDS = 0.01
_MOST_SPREAD_SECONDS = 60.0
#: How long a delivery waits while another one probes.
_PROBED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a delivery has to wait, and why the circuit is open."""

    seconds: float
    why: str = ""


@dataclass(slots=True)
class _Entry:
    """An open circuit in the copy; ``until`` is on our monotonic clock."""

    circuit: circuits.Circuit
    until: float
    put_off: int = 0


@functools.lru_cache(maxsize=4096)
def host_of(namespace: str, url: str | None, service: actions.ServiceRef | None) -> str:
    """Return the key of a receiver: namespace, scheme, host and port."""
    if service is not None:
        return f"{namespace} {service.scheme} {service.name}.{namespace}.svc {service.port}"
    try:
        parsed = yarl.URL(url or "", encoded=True)
    except ValueError:
        return f"{namespace} unreadable"
    host = (parsed.raw_host or "").lower().rstrip(".")
    return f"{namespace} {parsed.scheme} {host} {parsed.port}"


class CircuitBreaker:
    """One worker's side of the circuit breaker."""

    def __init__(self, shared: circuits.Circuits, clock: clocks.Clock) -> None:
        self._shared = shared
        self._clock = clock
        self._hosts: dict[str, _Entry] = {}
        self._gone: dict[str, int] = {}
        #: When this worker last called a receiver that failed, and whether the call failed.
        self._calls: dict[str, deque[tuple[float, bool]]] = {}
        self._looked_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        #: Serialises reads, so that an older copy never replaces a newer one.
        self._in_turn = asyncio.Lock()

    async def close(self) -> None:
        """Wait for the reports that are under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- before a delivery -----------------------------------------------------------------------

    async def freshen(self) -> None:
        """Read the copy again if it is stale; only the very first delivery waits for it."""
        now = self._clock.monotonic()
        if now - self._looked_at < FRESH_SECONDS:
            return
        is_first = self._looked_at == float("-inf")
        self._looked_at = now
        looking = self._report()
        if is_first:
            await asyncio.wait({looking}, timeout=_FIRST_SECONDS)

    def is_gone(self, uid: str, generation: int) -> bool:
        """Whether the receiver of this Schedule, or of a newer generation, said that it is gone."""
        return self._gone.get(uid, -1) >= generation

    def wait_of(self, host: str) -> Wait | None:
        """Return how long the circuit stays open at least; None if a delivery may try."""
        entry = self._hosts.get(host)
        now = self._clock.monotonic()
        if entry is None or now >= entry.until:
            return None
        return self._put_off(entry, entry.until - now)

    async def admit(self, host: str, hold_seconds: float) -> bool | Wait:
        """Return True to send the delivery as the circuit's probe, False to send it, or a Wait.

        A probe's outcome decides about the circuit. No other runs for up to ``hold_seconds``.
        """
        entry = self._hosts.get(host)
        if entry is None:
            return False
        if (wait := self.wait_of(host)) is not None:
            return wait
        try:
            is_given, circuit, now_us = await self._shared.probe(host, hold_seconds)
        except (errors.TryLater, errors.WorldChanged):
            return self._put_off(entry, _PROBED_SECONDS)
        if is_given:
            return True
        if circuit is None:
            self._close(host)
            return False
        entry = self._put(host, circuit, now_us)
        return self._put_off(entry, max(entry.until - self._clock.monotonic(), _PROBED_SECONDS))

    def _put_off(self, entry: _Entry, seconds: float) -> Wait:
        spread = entry.put_off * _SPACING_SECONDS % _MOST_SPREAD_SECONDS
        entry.put_off += 1
        return Wait(seconds + spread, entry.circuit.trouble)

    # -- after a delivery ------------------------------------------------------------------------

    def note(
        self,
        host: str,
        succeeded: bool | None,  # noqa: FBT001 - the outcome
        cause: str,
        *,
        is_probe: bool,
    ) -> None:
        """Count a delivery, with the cause of a failure; None = the receiver's health unknown."""
        if is_probe:
            self._report(self._shared.probed(host, succeeded, cause))
        elif succeeded is None or host in self._hosts:
            return  # deliveries that were in flight when the circuit opened do not count
        elif host in self._calls or not succeeded:
            self._count(host, cause, has_failed=not succeeded)

    def _count(self, host: str, cause: str, *, has_failed: bool) -> None:
        rule = self._shared.rule
        calls = self._calls.pop(host, None) or deque(maxlen=rule.last_calls)
        calls.append((self._clock.monotonic(), has_failed))
        if has_failed and (why := rule.trouble_of(calls)):
            self._report(self._shared.open(host, why, cause))
        elif any(failed for _, failed in calls):
            self._calls[host] = calls
            if len(self._calls) > circuits.MOST_KNOWN:
                del self._calls[next(iter(self._calls))]

    def note_gone(self, uid: str, generation: int) -> None:
        """Record that the receiver of this Schedule is gone; generation 0 = it is back.

        If Redis does not take the record, the next delivery gets the same 410 again.
        """
        if generation or uid in self._gone:
            self._report(self._shared.note_gone(uid, generation))

    # -- what all workers share ------------------------------------------------------------------

    def _report(self, *reports: Awaitable[None]) -> asyncio.Task[None]:
        """In the background, make these reports to the other workers and read the copy again."""
        task = asyncio.get_running_loop().create_task(self._report_and_read(reports))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _report_and_read(self, reports: Iterable[Awaitable[None]]) -> None:
        try:
            for report in reports:
                await report
            async with self._in_turn:
                board = await self._shared.read()
                for host, circuit in board.hosts.items():
                    self._put(host, circuit, board.now_us)
                for host in self._hosts.keys() - board.hosts.keys():
                    self._close(host)
                self._gone = board.gone
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.debug("circuits not reached", error=str(trouble))

    def _put(self, host: str, circuit: circuits.Circuit, now_us: int) -> _Entry:
        older = self._hosts.get(host)
        if older is None:
            telemetry.logger.warning("circuit opened", receiver=host)
        entry = _Entry(circuit, self._clock.monotonic() + (circuit.until_us - now_us) / 1_000_000)
        if older is not None and older.circuit.until_us == circuit.until_us:
            entry.put_off = older.put_off
        self._hosts[host] = entry
        self._calls.pop(host, None)
        return entry

    def _close(self, host: str) -> None:
        if self._hosts.pop(host, None) is not None:
            telemetry.logger.info("circuit closed", receiver=host)
