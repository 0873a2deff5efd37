"""What this worker counts of its receivers, and what all workers know of those in trouble.

A worker counts its own calls of receivers that fail, and opens a circuit for all workers
(``delayqueue.circuits``). Here is a copy of what is known, no older than a second while webhooks
are sent, so that a delivery to a healthy receiver needs no request. While a circuit is open nothing
is sent; when it may be probed, one delivery of all workers is the probe. A server that cannot be
reached lets everything through: a worker that can claim can reach it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from dataclasses import dataclass

import yarl

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.delayqueue import circuits
from duepoint.schedules import actions

#: How old the copy may be before it is read again, beside the delivery that finds it so.
FRESH_SECONDS = 1.0
#: How long the very first delivery waits for it.
_FIRST_SECONDS = 0.5
#: Deliveries that wait for a circuit come back so far from one another, not all at once.
_SPACING_SECONDS = 0.01
_MOST_SPREAD_SECONDS = 60.0
#: While another worker probes.
_PROBED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wait:
    """It may not, for so long, and why the circuit is open."""

    seconds: float
    why: str = ""


@dataclass(slots=True)
class _Entry:
    """An open circuit on the copy, with its time on our clock."""

    circuit: circuits.Circuit
    until: float
    put_off: int = 0


@dataclass(slots=True)
class _Calls:
    """Our calls of a receiver that fails, since the window began."""

    since: float
    calls: int = 0
    failed: int = 0
    in_a_row: int = 0


@functools.lru_cache(maxsize=4096)
def host_of(namespace: str, url: str | None, service: actions.ServiceRef | None) -> str:
    """The name of a receiver: namespace, scheme, host and port."""
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
        self._calls: dict[str, _Calls] = {}
        self._looked_at = float("-inf")
        self._asking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: A copy that was read before does not replace a newer one.
        self._in_turn = asyncio.Lock()

    async def close(self) -> None:
        """Tell what is left to tell."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- before a delivery -----------------------------------------------------------------------

    def has_nothing_against(self, host: str, uid: str) -> bool:
        """Whether the copy is young and knows neither the receiver nor the Schedule."""
        age = self._clock.monotonic() - self._looked_at
        return age < FRESH_SECONDS and host not in self._hosts and uid not in self._gone

    async def freshen(self) -> None:
        """See that the copy is young enough; only the first delivery of all waits for it."""
        now = self._clock.monotonic()
        if now - self._looked_at < FRESH_SECONDS:
            return
        is_first = self._looked_at == float("-inf")
        self._looked_at = now
        looking = self._in_background(self._look())
        if is_first:
            await asyncio.wait({looking}, timeout=_FIRST_SECONDS)

    def is_gone(self, uid: str, generation: int) -> bool:
        """Whether the receiver of this Schedule, or of a newer generation, said that it is gone."""
        return self._gone.get(uid, -1) >= generation

    def wait_of(self, host: str) -> Wait | None:
        """For how long the circuit certainly stays open."""
        entry = self._hosts.get(host)
        now = self._clock.monotonic()
        if entry is None or now >= entry.until:
            return None
        return self._put_off(entry, entry.until - now)

    async def admit(self, host: str, hold_seconds: float) -> bool | Wait:
        """Whether the delivery may go out only as the probe of the circuit, or has to wait.

        A probe's outcome decides about the circuit. It is held for so many seconds at most.
        """
        entry = self._hosts.get(host)
        if entry is None:
            return False
        wait = self.wait_of(host)
        if wait is None and host in self._asking:
            wait = self._put_off(entry, _PROBED_SECONDS)
        if wait is not None:
            return wait
        self._asking.add(host)
        try:
            is_given, circuit, now_us = await self._shared.probe(host, hold_seconds)
        except (errors.TryLater, errors.WorldChanged):
            return self._put_off(entry, _PROBED_SECONDS)
        finally:
            self._asking.discard(host)
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
        cause: str = "",
        *,
        is_probe: bool = False,
    ) -> None:
        """What became of it, and of a failure why; None = it says nothing of the receiver."""
        if is_probe:
            self._in_background(self._probed(host, succeeded, cause))
        elif succeeded is None or host in self._hosts:
            return  # what was under way when the circuit opened changes nothing
        elif host in self._calls or not succeeded:
            self._count(host, cause, has_failed=not succeeded)

    def _count(self, host: str, cause: str, *, has_failed: bool) -> None:
        now, rule = self._clock.monotonic(), self._shared.rule
        counted = self._calls.pop(host, None)
        if counted is None or now - counted.since >= rule.window_us / 1_000_000:
            counted = _Calls(now, in_a_row=0 if counted is None else counted.in_a_row)
        counted.calls += 1
        counted.failed += has_failed
        counted.in_a_row = counted.in_a_row + 1 if has_failed else 0
        why = rule.trouble_of(in_a_row=counted.in_a_row, failed=counted.failed, calls=counted.calls)
        if has_failed and why:
            self._in_background(self._open(host, why, cause))
        elif counted.failed:
            self._calls[host] = counted
            if len(self._calls) > circuits.MOST_KNOWN:
                del self._calls[next(iter(self._calls))]

    def note_gone(self, uid: str, generation: int) -> None:
        """The receiver of this Schedule said that it is gone; 0 = it is there again.

        Where Redis does not take it, the next delivery hears the same again.
        """
        if generation or uid in self._gone:
            self._in_background(self._tell_gone(uid, generation))

    # -- what all know ---------------------------------------------------------------------------

    async def _look(self) -> None:
        async with self._in_turn:
            board = await self._shared.read()
            for host, circuit in board.hosts.items():
                self._put(host, circuit, board.now_us)
            for host in self._hosts.keys() - board.hosts.keys():
                self._close(host)
            self._gone = board.gone
            if board.stale:
                await self._shared.forget(board.stale)

    async def _tell_gone(self, uid: str, generation: int) -> None:
        await self._shared.note_gone(uid, generation)
        await self._look()

    async def _open(self, host: str, why: str, cause: str) -> None:
        await self._shared.open(host, why, cause)
        await self._look()

    async def _probed(self, host: str, succeeded: bool | None, cause: str) -> None:  # noqa: FBT001 - the outcome
        await self._shared.probed(host, succeeded, cause)
        await self._look()

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

    def _in_background(self, talking: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_quietly(talking))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _quietly(talking: Coroutine[None, None, None]) -> None:
    try:
        await talking
    except (errors.TryLater, errors.WorldChanged) as trouble:
        telemetry.logger.debug("circuits not reached", error=str(trouble))
