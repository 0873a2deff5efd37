"""Members put by some processes, as the HTTP API puts those of a bulk write.

``python -m benchmarks.members.loading URL COUNT FIRST LAST`` is one of them: two calls of 4,000
rows side by side, so that one is put together while the server writes the other.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator

import uvloop

from benchmarks import loaders, report
from benchmarks.members import place
from benchmarks.report import Figure
from duepoint import app
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.members.values import Outcome
from tests.support.redisserver import RedisServer

NAME = "members-load"
_PART = 4_000
_SIDE_BY_SIDE = 2
_SAID = _MANY = 1_000_000


async def load(server: RedisServer, count: int, processes: int) -> list[Figure]:
    """All members of the set; how quickly they went in, and what each takes."""
    empty = _used(server)
    started = await loaders.start(
        "benchmarks.members.loading", server.url, count, 0, count, processes=processes
    )
    took = await loaders.run(started)
    return [
        Figure(
            benchmark=NAME, figure=f"{server.kind}, {count:,} members put by {processes} processes",
            unit="members/s", value=round(count / took.seconds),
            compared_with=f"{took.cpu / count * 1e6:.1f} us of client CPU a member",
        ),
        Figure(
            benchmark=NAME, figure=f"{server.kind}, memory of a member, of {count:,}", unit="bytes",
            value=round((_used(server) - empty) / count, 1),
            bar="<= 200" if count >= _MANY else "",  # of fewer, texts and buckets are what counts
        ),
    ]  # fmt: skip


def _used(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("memory")["used_memory"])


async def _loader(url: str, count: int, first: int, last: int) -> None:
    async with place.queue(url, count) as queue:
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.process_time()
        begins = iter(range(first, last, _PART))
        puts = (_put(queue, count, begins, last) for _ in range(_SIDE_BY_SIDE))
        await asyncio.gather(*puts)
        print(json.dumps({"cpu": time.process_time() - begun}), flush=True)


async def _put(queue: delayqueue.DelayQueue, count: int, begins: Iterator[int], last: int) -> None:
    record = place.the_set(queue, count)
    for first in begins:
        rows = place.wanted(first, min(last, first + _PART))
        answers = await queue.members.put(record, rows)
        refused = [one for one in answers if one.outcome is not Outcome.CREATED]
        if refused:
            raise SystemExit(f"{len(refused)} rows were not created, the first: {refused[0]}")
        if first % _SAID < _PART:
            report.say(f"{first:,} members")


if __name__ == "__main__":
    gc.freeze()  # as the processes do
    gc.set_threshold(*app.GC_THRESHOLDS)
    uvloop.run(_loader(sys.argv[1], *map(int, sys.argv[2:5])))
