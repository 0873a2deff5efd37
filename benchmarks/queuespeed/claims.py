"""Claim and settle with a handler that does nothing, beside a bare claim and range ack.

Both empty the same number of points, all due at once, from one process and one connection after
the other, several times in turn; the ratio of medians is what counts. Ours goes through
``DelayQueue``: claim ids, lanes, heads, leases, the claimed band, two clocks, points at the end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import redis.asyncio

from benchmarks import report
from benchmarks.queuespeed import bare, place
from benchmarks.report import Figure
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue.claims import chaincolumns
from tests.support.redisserver import RedisServer

NAME = "claims"
BATCH = 500
BARS = {1: 0.8, 16: 0.7, 64: 0.45}
_AGO_US = 1_000_000


async def run(
    kind: str, *, counts: tuple[int, ...] = (10_000, 100_000), turns: int = 5
) -> list[Figure]:
    figures: list[Figure] = []
    for count in counts:
        for lanes, bar in BARS.items():
            report.say(f"{kind}: {count:,} due at once in {lanes} lanes")
            with place.server(kind) as server:
                rates = await _in_turn(server, lanes, count, turns)
            figures += _figures(f"{kind}, {count:,} due, {lanes} lanes", rates, bar)
    return figures


@dataclasses.dataclass
class _Rates:
    """Points a second, turn by turn."""

    ours: list[float] = dataclasses.field(default_factory=list)
    bare: list[float] = dataclasses.field(default_factory=list)
    together: list[float] = dataclasses.field(default_factory=list)


async def _in_turn(server: RedisServer, lanes: int, count: int, turns: int) -> _Rates:
    rates = _Rates()
    async with place.queue(server, 1) as queue:
        shard = place.names(await queue.layouts.read(), 0)
        client = redis.asyncio.Redis(port=server.port, protocol=2)
        keys = [f"bare:{lane}" for lane in range(lanes)]
        other = bare.Bare(client, keys, "bare:leases")
        await other.load()
        with server.client() as filler:
            for _ in range(turns + 1):
                place.put_points(filler, shard, lanes, count, place.now_us() - _AGO_US)
                rates.ours.append(await _rate(empty(queue)))
                for listed, together in ((rates.bare, False), (rates.together, True)):
                    place.put_members(filler, keys, count, place.now_us() - _AGO_US)
                    listed.append(await _rate(other.empty(BATCH, together=together)))
        await client.aclose()
    for listed in (rates.ours, rates.bare, rates.together):
        del listed[0]  # the first turn warms up
    return rates


async def _rate(emptying: Coroutine[Any, Any, int]) -> float:
    began = time.perf_counter()
    total = await emptying
    return total / (time.perf_counter() - began)


async def empty(
    queue: delayqueue.DelayQueue, handle: Callable[[bytes], object] | None = None
) -> int:
    """Claim and settle until nothing is due; how many points that were.

    The settlement of one batch is under way while the next is claimed, as in a worker; before
    it, each member is handed to ``handle``.
    """
    claimed: messages.Claim | None = await _claim(queue)
    total = 0
    while claimed is not None:
        if handle is not None and (chains := chaincolumns.of(claimed.points)) is not None:
            for member in chains.members:
                handle(member)
        following, settled = await asyncio.gather(
            _claim(queue), queue.settlements.settle(claimed, messages.Settlement(whole=True))
        )
        total += settled.applied
        claimed = following
    return total


async def _claim(queue: delayqueue.DelayQueue) -> messages.Claim | None:
    (answer,) = await queue.claims.claim((messages.ShardId(0),), worker="bench", batch=BATCH)
    return answer.claim


def _figures(case: str, rates: _Rates, bar: float) -> Iterator[Figure]:
    yield Figure(
        benchmark=NAME, figure=f"claim and settle: {case}", unit="points/s",
        value=round(statistics.median(rates.ours)), runs=len(rates.ours),
        spread=(round(min(rates.ours)), round(max(rates.ours))),
        compared_with=f"bare claim, then range ack: {statistics.median(rates.bare):.0f}",
    )  # fmt: skip
    for against, listed, limit in (
        ("of a bare claim and range ack", rates.bare, f">= {bar}"),
        ("of the same with ack and next claim in one round trip", rates.together, ""),
    ):
        ratios = [one / other for one, other in zip(rates.ours, listed, strict=True)]
        yield Figure(
            benchmark=NAME, figure=f"{against}: {case}", unit="ratio", runs=len(ratios),
            value=round(statistics.median(ratios), 3), bar=limit,
            spread=(round(min(ratios), 3), round(max(ratios), 3)),
        )  # fmt: skip
