"""Filling the index through ``upsert``, as the leader fills an empty one.

``python -m benchmarks.scale.loading URL COUNT FIRST LAST`` is one loader: a process that makes the
schedules and arms them, three parts side by side, so that one is put together while the server
writes another. It prints what it spent. The leader is one such process; several share the work
where the figure says so.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import redis
import uvloop

from benchmarks import loaders, report
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from benchmarks.scale import place, source
from duepoint import app, errors
from duepoint.delayqueue import delayqueue, messages
from tests.support.redisserver import RedisServer

NAME = "scale-load"
_PART = 5_000
_SIDE_BY_SIDE = 3
_YEAR_US = 31_536_000_000_000


@dataclass(frozen=True, slots=True)
class Spent:
    """What the filling of so many schedules took."""

    count: int
    seconds: float
    client_us: float
    server_us: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds


async def load(server: RedisServer, count: int, first: int, last: int, *, processes: int) -> Spent:
    """Schedules ``first`` to ``last`` of ``count``, shared by so many loaders."""
    with server.client() as client:
        started = await loaders.start(
            "benchmarks.scale.loading", server.url, count, first, last, processes=processes
        )
        before = _server_cpu(client)
        took = await loaders.run(started)
        server_cpu = _server_cpu(client) - before
    done = last - first
    return Spent(done, took.seconds, took.cpu / done * 1e6, server_cpu / done * 1e6)


def figures(case: str, spent: Spent, bar: str) -> Iterator[Figure]:
    yield Figure(
        benchmark=NAME, figure=f"definitions with their points: {case}", unit="schedules/s",
        value=round(spent.rate), bar=bar,
        compared_with=f"{spent.client_us:.1f} us of client and {spent.server_us:.1f} us of server"
        " CPU a schedule, making the schedules included",
    )  # fmt: skip


def _server_cpu(client: redis.Redis) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


async def _loader(url: str, count: int, first: int, last: int) -> None:
    async with place.queue(url, count) as queue:
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.process_time()
        begins = iter(range(first, last, _PART))
        due_us = points_place.now_us() + _YEAR_US
        await asyncio.gather(
            *(_fill(queue, begins, first, last, due_us) for _ in range(_SIDE_BY_SIDE))
        )
    print(json.dumps({"cpu": time.process_time() - begun}), flush=True)


async def _fill(
    queue: delayqueue.DelayQueue, begins: Iterator[int], first: int, last: int, due_us: int
) -> None:
    for begin in begins:
        wanted = source.wanted(queue, begin, min(last, begin + _PART), due_us)
        await _insist(queue, wanted)
        if (begin - first) % 500_000 < _PART:
            report.say(f"loader at {begin:,} of {first:,} to {last:,}")


async def _insist(
    queue: delayqueue.DelayQueue, wanted: list[tuple[messages.Arming, bytes]]
) -> None:
    """As the leader does: what was cut off is asked for again."""
    while True:
        try:
            await queue.writer.upsert(wanted, points_place.EPOCH)
        except errors.QueueUnavailable as trouble:
            report.say(f"again: {trouble}")
            await asyncio.sleep(1)
        else:
            return


if __name__ == "__main__":
    gc.freeze()  # as the processes do
    gc.set_threshold(*app.GC_THRESHOLDS)
    uvloop.run(_loader(sys.argv[1], *map(int, sys.argv[2:5])))
