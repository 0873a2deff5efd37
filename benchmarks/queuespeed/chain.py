"""The whole chain in one worker process: claim, definition, next slot, publish, outcome, next due.

The worker is the product's own (claimer, pipeline, stream target, queue), in this process. All
chains are due at one whole hour, so each is in the way of every other, and each moves on to its
next slot. Firings are published in two ways: one XADD each, as a Schedule's stream target does, and
one entry for each batch, by a target of the benchmark; the rest of the path is the same.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from benchmarks import report
from benchmarks.queuespeed import place
from benchmarks.report import Figure
from duepoint import clock as clocks
from duepoint import services, telemetry
from duepoint.delayqueue import delayqueue, messages
from duepoint.schedules import actions
from duepoint.targets import outcome, target
from duepoint.targets.stream import target as streamtarget
from duepoint.worker import claimer, firing
from tests.fakes.nojobs import no_jobs
from tests.support.redisserver import RedisServer

COUNT = int(report.number("COUNT", 100_000, 20_000))
TURNS = 3
SHARDS = 4
_CONCURRENCY = 256
_HOUR_US = 3_600_000_000
#: The worker is up and asleep when the hour begins.
_AHEAD_US = 1_000_000
_POLL_SECONDS = 0.02


class Firings(enum.Enum):
    """How the firings of a claim are published."""

    ONE_ENTRY = "one entry a batch"
    ENTRIES = "one XADD a firing"


BARS = {Firings.ONE_ENTRY: ">= 60000", Firings.ENTRIES: ">= 35000"}


class HourClock(clocks.SystemClock):
    """This machine's clock, set back so that an hour is about to begin.

    A point is due when both clocks say so, so the worker alone decides here: nobody waits for the
    next hour, and the slots are those that people write.
    """

    def __init__(self) -> None:
        self.hour_us = place.now_us() // _HOUR_US * _HOUR_US
        self._behind_us = place.now_us() - self.hour_us + _AHEAD_US

    def now_us(self) -> int:
        return super().now_us() - self._behind_us


class OneEntryABatch:
    """A target like a stream's, but the settlement appends one entry for each batch.

    A batch is what a claim holds of one namespace.
    """

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        raise NotImplementedError(f"{firing.name} is delivered by its settlement")

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        raise NotImplementedError(f"{firing.name} refers to nothing")

    def appends(self, action: actions.Action) -> bool:  # noqa: ARG002 - every one
        return True

    def entries(self, firings: target.Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        return messages.StreamEntries(
            namespace=firings.namespace,
            name=_STREAM,
            max_length=_KEPT,
            names=_FIELDS,
            members=members,
            values=[_packed(firings.action, firings.uids, firings.generations, firings.slots_us)],
        )

    def message(self, action: actions.Action) -> str:  # noqa: ARG002 - of any
        return _STREAM


_STREAM, _KEPT = "batches", 1000
_FIELDS = ("payload", "firings")


def _packed(action: actions.Action, *columns: Sequence[object]) -> tuple[bytes, bytes]:
    return bytes(action.payload), msgspec.msgpack.encode(columns)


async def run(kind: str) -> AsyncIterator[Figure]:
    for case, bar in BARS.items():
        report.say(f"{kind}: {COUNT:,} chains due at once, {case.value}")
        taken = [await _turn(kind, case) for _ in range(TURNS)]
        for figure in _figures(f"{kind}, {COUNT:,} due at once, {case.value}", taken, bar):
            yield figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Taken:
    """The firings a second, and the CPU microseconds of one."""

    rate: float
    client_us: float
    server_us: float


async def _turn(kind: str, case: Firings) -> _Taken:
    """Fire each chain once, on a server of its own."""
    with place.server(kind) as server:
        async with place.queue(server.url, SHARDS) as queue:
            due_us = place.now_us() // _HOUR_US * _HOUR_US
            await place.store_due(queue, count=COUNT, namespaces=4, due_us=due_us)
            client, served = time.process_time(), _server_seconds(server)
            rate = await _fire_all(queue, case)
            return _Taken(
                rate=rate,
                client_us=(time.process_time() - client) / COUNT * 1e6,
                server_us=(_server_seconds(server) - served) / COUNT * 1e6,
            )


def _server_seconds(server: RedisServer) -> float:
    with server.client() as client:
        used = client.info("cpu")
    return float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


async def _fire_all(queue: delayqueue.DelayQueue, case: Firings) -> float:
    """Fire and settle all that is due at the hour; return the firings a second."""
    clock = HourClock()
    queue.index.clock = clock
    elsewhere: Any = None  # no entry is for another Redis
    own = streamtarget.StreamTarget(clock, elsewhere)
    one = OneEntryABatch() if case is Firings.ONE_ENTRY else own
    work = a_worker(queue, one, clock)
    before = _fired()
    running = asyncio.create_task(work.run())
    await asyncio.sleep((clock.hour_us - clock.now_us()) / 1_000_000)
    began = time.perf_counter()
    while not running.done() and _fired() - before < COUNT:  # noqa: ASYNC110 - no signal of it
        await asyncio.sleep(_POLL_SECONDS)
    work.drain()
    await running
    return COUNT / (time.perf_counter() - began)


def a_worker(
    queue: delayqueue.DelayQueue,
    one: target.EntryTarget,
    clock: clocks.Clock | None = None,
    grace_seconds: float = 5.0,
) -> claimer.Claimer:
    """Return the product's worker, with one target for every kind."""
    clock = clock or clocks.SystemClock()
    limits = claimer.Limits(
        batch=_CONCURRENCY,
        under_way=4 * _CONCURRENCY,
        lease_seconds=10.0,
        grace_seconds=grace_seconds,
    )
    fires = firing.Firer(
        queue=queue,
        targets=dict.fromkeys(("job", "webhook", "stream"), one),
        streams=one,
        clock=clock,
        places=_CONCURRENCY,
        lease_seconds=10.0,
        jobs=no_jobs(),
    )
    return claimer.Claimer(queue, fires, clock, services.Health(), worker="bench", limits=limits)


def _fired() -> float:
    """Return the number of firings that this process has counted."""
    return sum(
        sample.value
        for metric in telemetry.slots_total.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["outcome"] == "Started"
    )


def _figures(case: str, taken: list[_Taken], bar: str) -> Iterator[Figure]:
    client = statistics.median(one.client_us for one in taken)
    server = statistics.median(one.server_us for one in taken)
    yield report.Bench("chain", case).median(
        "firings", [one.rate for one in taken], "firings/s", bar,
        beside=f"CPU of a firing: client {client:.1f} us, server {server:.1f} us",
    )  # fmt: skip
