"""The full chain of one worker process: claim, definition, next slot, publish, news, next due.

The worker is the real one (claimer, pipeline, stream target, queue), in this process; no
Kubernetes is needed for streams. All chains are due at one whole hour, so that every one of them
is in the way of every other, and each is moved on to its next slot. Two ways of publishing: one
XADD for each firing, which is what a Schedule's stream target does, and one entry for each batch,
as the prototype did whose figure is the bar; there the worker and its path are the same (the
settlement appends), and a target of the benchmark's own packs a batch into one entry.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import statistics
import time
from collections.abc import Iterator, Sequence

import msgspec

from benchmarks import report
from benchmarks.queuespeed import filling, place
from benchmarks.report import Figure
from duepoint import clock as clocks
from duepoint import services, telemetry
from duepoint.delayqueue import delayqueue, messages, quotas
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.targets import target
from duepoint.targets.stream import target as streamtarget
from duepoint.worker import claimer, pipeline
from tests.support.redisserver import RedisServer

NAME = "chain"
SHARDS = 4
_CONCURRENCY = 256
_HOUR_US = 3_600_000_000
#: The worker is up and asleep when the hour begins.
_AHEAD_US = 1_000_000
_POLL_SECONDS = 0.02


class Firings(enum.Enum):
    """How the firings of a claim are carried out."""

    ONE_ENTRY = "one entry a batch"
    ENTRIES = "one XADD a firing"
    REQUESTS = "one request a firing"


class HourClock(clocks.SystemClock):
    """This machine's clock, set back so far that an hour is about to begin.

    A point is due when both clocks say so, so the worker alone decides what is due here: no
    wait for the next hour, and the slots are those that people write.
    """

    def __init__(self) -> None:
        self.hour_us = place.now_us() // _HOUR_US * _HOUR_US
        self._behind_us = place.now_us() - self.hour_us + _AHEAD_US

    def now_us(self) -> int:
        return super().now_us() - self._behind_us


class OneEntryABatch:
    """A target whose deliveries the settlement makes, as those of streams: one entry for a batch.

    A batch is what a claim holds of one namespace; the worker's path is that of the stream target.
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


class AnswersAtOnce(OneEntryABatch):
    """A target whose every request is a success of its own, without a network."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock

    async def fire(self, firing: target.Firing) -> outcome.Outcome:  # noqa: ARG002 - of any
        return outcome.Delivered(accepted_us=self._clock.now_us(), message="200")

    def appends(self, action: actions.Action) -> bool:  # noqa: ARG002 - none
        return False


_STREAM, _KEPT = "batches", 1000
_FIELDS = ("payload", "firings")


def _packed(action: actions.Action, *columns: Sequence[object]) -> tuple[bytes, bytes]:
    return bytes(action.payload), msgspec.msgpack.encode(columns)


async def run(kind: str, *, count: int = 200_000, turns: int = 3) -> list[Figure]:
    figures: list[Figure] = []
    for case, bar in ((Firings.ONE_ENTRY, ">= 60000"), (Firings.ENTRIES, ">= 35000")):
        report.say(f"{kind}: {count:,} chains due at once, {case.value}")
        taken = [await turn(kind, count, case) for _ in range(turns)]
        figures += _figures(f"{kind}, {count:,} due at once, {case.value}", taken, bar)
    return figures


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taken:
    """Firings a second, the CPU time of one in microseconds, and the server's memory afterwards."""

    rate: float
    client_us: float
    server_us: float
    memory: int


async def turn(kind: str, count: int, case: Firings, limits: quotas.Quotas = quotas.USUAL) -> Taken:
    """One firing of each of so many chains, on a server of its own."""
    with place.server(kind) as server:
        async with place.queue(server, SHARDS) as queue:
            queue.settlements.quotas = limits
            await fill(queue, server, count)
            client, served = time.process_time(), _server_seconds(server)
            rate = await fire_all(queue, count, case)
            return Taken(
                rate=rate,
                memory=_memory(server),
                client_us=(time.process_time() - client) / count * 1e6,
                server_us=(_server_seconds(server) - served) / count * 1e6,
            )


def _memory(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("memory")["used_memory"])


def _server_seconds(server: RedisServer) -> float:
    with server.client() as client:
        used = client.info("cpu")
    return float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


async def fill(queue: delayqueue.DelayQueue, server: RedisServer, count: int) -> None:
    """Chains that are all due at the hour."""
    due_us = place.now_us() // _HOUR_US * _HOUR_US
    with server.client() as client:
        await filling.schedules(queue, client, count=count, namespaces=4, due_us=due_us)


async def fire_all(queue: delayqueue.DelayQueue, count: int, case: Firings) -> float:
    """Firings a second from the hour until nothing is due any more."""
    clock = HourClock()
    due_us = clock.hour_us
    queue.index.clock = clock
    work = _worker(queue, clock, case)
    before = _fired()
    running = asyncio.create_task(work.run())
    await asyncio.sleep((due_us - clock.now_us()) / 1_000_000)
    began = time.perf_counter()
    while not running.done() and (  # noqa: ASYNC110 - the last one is not signalled
        _fired() - before < count or await _due(queue, due_us)
    ):
        await asyncio.sleep(_POLL_SECONDS)
    taken = time.perf_counter() - began
    work.drain()
    await running
    return count / taken


def _worker(queue: delayqueue.DelayQueue, clock: clocks.Clock, case: Firings) -> claimer.Claimer:
    one: target.WorkerTarget
    match case:
        case Firings.ONE_ENTRY:
            one = OneEntryABatch()
        case Firings.ENTRIES:
            one = streamtarget.StreamTarget(clock)
        case Firings.REQUESTS:
            one = AnswersAtOnce(clock)
    whole = target.Targets(job=one, webhook=one, stream=one)
    bounds = pipeline.Bounds(concurrency=_CONCURRENCY, lease_seconds=10.0)
    return claimer.Claimer(
        queue,
        pipeline.Pipeline(queue=queue, target=whole, clock=clock, bounds=bounds),
        clock,
        services.Health(),
        worker="bench",
        limits=claimer.Limits(
            batch=500, under_way=2 * _CONCURRENCY, lease_seconds=10.0, grace_seconds=5.0
        ),
    )


def _fired() -> float:
    """Firings that this process has counted; Redis is asked when those are all."""
    return sum(
        sample.value
        for metric in telemetry.slots_total.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["outcome"] == "Started"
    )


async def _due(queue: delayqueue.DelayQueue, due_us: int) -> int:
    """Points that have not moved on: due then, or claimed."""
    layout = await queue.layouts.read()
    asked = queue.index.client.pipeline(transaction=False)
    for shard in range(layout.shards):
        names = place.names(layout, shard)
        asked.zcount(names.heads, "-inf", due_us)
        asked.zcard(names.claims)
    found: list[int] = await asked.execute()
    return sum(found) - layout.shards  # each has a sentinel among its claims


def _figures(case: str, taken: list[Taken], bar: str) -> Iterator[Figure]:
    rates = [one.rate for one in taken]
    client = statistics.median(one.client_us for one in taken)
    server = statistics.median(one.server_us for one in taken)
    yield Figure(
        benchmark=NAME, figure=f"firings: {case}", unit="firings/s", bar=bar,
        value=round(statistics.median(rates)), runs=len(rates),
        spread=(round(min(rates)), round(max(rates))),
        compared_with=f"CPU of a firing: client {client:.1f} us, server {server:.1f} us",
    )  # fmt: skip
