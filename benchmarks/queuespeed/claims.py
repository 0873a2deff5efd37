"""Claim and settle with a handler that does nothing, beside a bare claim and range ack.

Both empty the same number of points, all due at once, from one process and one connection, several
times in turn; the median of the ratios counts. Ours goes through ``DelayQueue``: claim ids, lanes,
leases, two clocks, definitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import redis.asyncio

from benchmarks import report
from benchmarks.queuespeed import bare, place
from benchmarks.report import Figure
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue.claims import chaincolumns
from tests.support.redisserver import RedisServer

BATCH = 500
BARS = {1: 0.8, 16: 0.7, 64: 0.45}
COUNTS = (10_000,) if report.IS_SMALL else (10_000, 100_000)
TURNS = 5
_AGO_US = 1_000_000


async def run(kind: str) -> AsyncIterator[Figure]:
    for count in COUNTS:
        for lanes, bar in BARS.items():
            report.say(f"{kind}: {count:,} due at once in {lanes} lanes")
            with place.server(kind) as server:
                rates = await _in_turn(server, lanes, count)
            for figure in _figures(f"{kind}, {count:,} due, {lanes} lanes", rates, f">= {bar}"):
                yield figure


async def _in_turn(server: RedisServer, lanes: int, count: int) -> dict[str, list[float]]:
    """Measure points a second in turns: ours, bare, and bare with one round trip a batch."""
    rates: dict[str, list[float]] = {"ours": [], "bare": [], "together": []}
    async with redis.asyncio.Redis(port=server.port, protocol=2) as client:
        other = bare.Bare(client, [f"bare:{lane}" for lane in range(lanes)], "bare:leases")
        await other.load()
        for _ in range(TURNS + 1):
            rates["ours"].append(await rate_of_ours(server, count, lanes))
            for name in ("bare", "together"):
                await other.fill(count, place.now_us() - _AGO_US)
                rates[name].append(await _rate(other.empty(BATCH, together=name == "together")))
    return {name: listed[1:] for name, listed in rates.items()}  # the first turn warms up


async def rate_of_ours(
    server: RedisServer,
    count: int,
    namespaces: int,
    handle: Callable[[bytes], object] | None = None,
) -> float:
    """Fill an index and empty it again; return the points a second."""
    with server.client() as client:
        client.flushdb()
    async with place.queue(server.url, 1) as queue:
        due_us = place.now_us() - _AGO_US
        await place.store_due(queue, count=count, namespaces=namespaces, due_us=due_us)
        return await _rate(empty(queue, handle))


async def _rate(emptying: Coroutine[Any, Any, int]) -> float:
    began = time.perf_counter()
    total = await emptying
    return total / (time.perf_counter() - began)


async def empty(
    queue: delayqueue.DelayQueue, handle: Callable[[bytes], object] | None = None
) -> int:
    """Claim and settle until nothing is due; return the number of points.

    While one batch is settled, the next is claimed, as in a worker. Each member of a batch is
    handed to ``handle`` first.
    """
    claimed: messages.Claim | None = await _claim(queue)
    total = 0
    while claimed is not None:
        chains = chaincolumns.of(claimed.points)
        members = [] if chains is None else chains.members
        if handle is not None:
            for member in members:
                handle(member)
        over = messages.Settlement(finished=members)
        following, settled = await asyncio.gather(
            _claim(queue), queue.settlements.settle(claimed, over)
        )
        total += settled.applied
        claimed = following
    return total


async def _claim(queue: delayqueue.DelayQueue) -> messages.Claim | None:
    (answer,) = await queue.claims.claim((messages.ShardId(0),), worker="bench", batch=BATCH)
    return answer.claim


def _figures(case: str, rates: dict[str, list[float]], bar: str) -> Iterator[Figure]:
    bench = report.Bench("claims", case)
    yield bench.median("claim and settle", rates["ours"], "points/s")
    yield bench.median("a bare claim and range ack", rates["bare"], "points/s")
    for figure, name, limit in (
        ("claim and settle, of a bare claim and range ack", "bare", bar),
        ("of the same with ack and next claim in one round trip", "together", ""),
    ):
        ratios = [one / other for one, other in zip(rates["ours"], rates[name], strict=True)]
        yield bench.median(figure, ratios, "ratio", limit, digits=3)
