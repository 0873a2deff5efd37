"""What this worker knows of receivers in trouble, and what it reports to the others.

All workers share one board (``delayqueue.circuits``). Here is a copy of it, no older than a second
while webhooks are sent, so that a delivery to a healthy receiver needs no request. Failures are
reported at once, in the background; successes only of receivers that are on the board. While a
circuit is open nothing is sent; when it may be probed, the board gives the probe to one delivery of
all workers. A board that cannot be reached lets everything through: a worker that can claim can
reach it.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Coroutine, Sequence
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
#: Successes are reported so long after the first of them.
_SOON_SECONDS = 0.2
#: Most runs of equal outcomes in a report of one receiver.
_MOST_RUNS = 200


@dataclass(frozen=True, slots=True)
class Wait:
    """It may not, for so long, and why the circuit is open."""

    seconds: float
    why: str = ""


@dataclass(slots=True)
class _Entry:
    """A circuit on the copy, with its times on our clock."""

    circuit: circuits.Circuit
    until: float
    put_off: int = 0


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

    def __init__(
        self,
        shared: circuits.Circuits,
        clock: clocks.Clock,
        rule: circuits.CircuitRule | None = None,
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._rule = rule or circuits.CircuitRule()
        self._version = -1
        self._hosts: dict[str, _Entry] = {}
        self._gone: dict[str, int] = {}
        self._looked_at = float("-inf")
        self._calls: dict[str, list[int]] = {}
        self._causes: dict[str, str] = {}
        self._gone_news: list[circuits.GoneReceiver] = []
        #: Those in reports that wait for their answers, by the number of the report.
        self._gone_reported: dict[int, Sequence[circuits.GoneReceiver]] = {}
        self._asking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._will_report = False
        self._asked = self._taken = 0

    async def close(self) -> None:
        """Send what is left to report."""
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
        looking = self._in_background(self._report_all())
        if is_first:
            await asyncio.wait({looking}, timeout=_FIRST_SECONDS)

    def is_gone(self, uid: str, generation: int) -> bool:
        """Whether the receiver of this Schedule, or of a newer generation, said that it is gone."""
        return self._gone.get(uid, -1) >= generation

    def wait_of(self, host: str) -> Wait | None:
        """For how long the circuit certainly stays open."""
        entry = self._hosts.get(host)
        now = self._clock.monotonic()
        if entry is None or not entry.circuit.is_open or now >= entry.until:
            return None
        return self._put_off(entry, entry.until - now)

    async def admit(self, host: str, hold_seconds: float) -> int | Wait:
        """Whether the delivery may go out, and of which probe it is; 0 = of none.

        A probe's outcome decides about the circuit. It is held for so many seconds at most.
        """
        entry = self._hosts.get(host)
        if entry is None or not entry.circuit.is_open:
            return 0
        wait = self.wait_of(host)
        if wait is None and host in self._asking:
            wait = self._put_off(entry, _PROBED_SECONDS)
        if wait is not None:
            return wait
        self._asking.add(host)
        try:
            board = await self._report(
                [circuits.News(host=host, ask_us=int(hold_seconds * 1_000_000))]
            )
        except (errors.TryLater, errors.WorldChanged):
            return self._put_off(entry, _PROBED_SECONDS)
        finally:
            self._asking.discard(host)
        if board.probes[0]:
            return board.probes[0]
        entry = self._hosts.get(host)
        if entry is None or not entry.circuit.is_open:
            return 0
        return self._put_off(entry, max(entry.until - self._clock.monotonic(), _PROBED_SECONDS))

    def _put_off(self, entry: _Entry, seconds: float) -> Wait:
        spread = entry.put_off * _SPACING_SECONDS % _MOST_SPREAD_SECONDS
        entry.put_off += 1
        return Wait(seconds + spread, circuits.trouble(entry.circuit, self._rule))

    # -- after a delivery ------------------------------------------------------------------------

    def note(
        self,
        host: str,
        probe_us: int,
        succeeded: bool | None,  # noqa: FBT001 - the outcome
        cause: str = "",
    ) -> None:
        """What became of it, and of a failure why; None = it says nothing of the receiver."""
        if probe_us:
            calls = () if succeeded is None else (1 if succeeded else -1,)
            news = circuits.News(host=host, calls=calls, probe_us=probe_us, cause=cause)
            self._in_background(self._report_quietly([news]))
        elif succeeded is False:
            _add(self._calls.setdefault(host, []), -1)
            self._causes[host] = cause
            self._report_now()
        elif succeeded and host in self._hosts:
            _add(self._calls.setdefault(host, []), 1)
            if len(self._tasks) == 0:
                self._in_background(self._report_all(_SOON_SECONDS))

    def note_gone(self, uid: str, generation: int) -> None:
        """The receiver of this Schedule said that it is gone; 0 = it is there again."""
        if not generation and uid not in self._gone:
            return
        news = circuits.GoneReceiver(uid=uid, generation=generation)
        self._remember_gone(news)
        self._gone_news.append(news)
        self._report_now()

    def _remember_gone(self, news: circuits.GoneReceiver) -> None:
        if news.generation:
            self._gone[news.uid] = news.generation
        else:
            self._gone.pop(news.uid, None)

    # -- the board -------------------------------------------------------------------------------

    def _report_now(self) -> None:
        if not self._will_report:
            self._will_report = True
            self._in_background(self._report_all())

    async def _report_all(self, after_seconds: float = 0.0) -> None:
        if after_seconds:
            await self._clock.sleep(after_seconds)
        await asyncio.sleep(0)  # what fails in this turn is reported together
        self._will_report = False
        calls_by_host, self._calls = self._calls, {}
        causes, self._causes = self._causes, {}
        gone, self._gone_news = self._gone_news, []
        news = [
            circuits.News(host=host, calls=tuple(calls), cause=causes.get(host, ""))
            for host, calls in calls_by_host.items()
        ]
        await self._report_quietly(news, gone)

    async def _report_quietly(
        self, news: Sequence[circuits.News], gone: Sequence[circuits.GoneReceiver] = ()
    ) -> None:
        try:
            await self._report(news, gone)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.debug("circuits not reported", error=str(trouble))

    async def _report(
        self, news: Sequence[circuits.News], gone: Sequence[circuits.GoneReceiver] = ()
    ) -> circuits.Board:
        self._looked_at = self._clock.monotonic()
        self._asked += 1
        number = self._asked
        self._gone_reported[number] = gone
        try:
            board = await self._shared.report(news, gone, known=self._version, rule=self._rule)
        finally:
            del self._gone_reported[number]
        if board.hosts is not None and number > self._taken:
            self._taken = number
            self._apply(board)
        return board

    def _apply(self, board: circuits.Board) -> None:
        now = self._clock.monotonic()
        before, self._hosts = self._hosts, {}
        for host, one in (board.hosts or {}).items():
            until_us = max(one.until_us, min(one.probe_us, board.now_us + 1_000_000))
            # A server's clock that was ahead has written an instant that is far away now.
            until_us = min(until_us, board.now_us + max(one.wait_us, 1_000_000))
            entry = _Entry(one, now + (until_us - board.now_us) / 1_000_000)
            older = before.get(host)
            if older is not None and older.circuit.until_us == one.until_us:
                entry.put_off = older.put_off
            elif one.is_open and (older is None or not older.circuit.is_open):
                telemetry.logger.warning("circuit opened", receiver=host)
            self._hosts[host] = entry
        for host, older in before.items():
            if older.circuit.is_open and host not in self._hosts:
                telemetry.logger.info("circuit closed", receiver=host)
        self._gone = dict(board.gone or {})
        # The board was read before these arrived: without them a Schedule would be sent once more.
        for news in itertools.chain(*self._gone_reported.values(), self._gone_news):
            self._remember_gone(news)
        self._version = board.version

    def _in_background(self, reporting: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(reporting)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _add(runs: list[int], call: int) -> None:
    """One more outcome at the end of runs of equal ones."""
    if runs and (runs[-1] > 0) == (call > 0):
        runs[-1] += call
    elif len(runs) < _MOST_RUNS:
        runs.append(call)
