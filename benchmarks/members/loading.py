"""Two processes store members side by side, as the HTTP API stores those of a bulk write.

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

from benchmarks import report
from benchmarks.members import place
from benchmarks.report import Figure
from benchmarks.scene import Child
from duepoint import app, errors
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.members.values import Outcome
from tests.support.redisserver import RedisServer

PROCESSES = 2
_ROWS = 4_000
_SIDE_BY_SIDE = 2
_SAID = 1_000_000
_STORED = {Outcome.CREATED, Outcome.UNCHANGED}
#: With fewer members most of the memory is texts and buckets.
_MANY = 10_000_000
_BARS = {"valkey": "<= 160", "redis-server": "<= 210"}


async def load(server: RedisServer, count: int) -> list[Figure]:
    """Store all members of the set; report the rate, and the bytes of each."""
    empty = _used(server)
    share = -(-count // PROCESSES)
    loaders = [
        await Child.start(
            "benchmarks.members.loading", server.url, count, first, min(count, first + share)
        )
        for first in range(0, count, share)
    ]
    began = time.perf_counter()
    said = await asyncio.gather(*(loader.finish("go") for loader in loaders))
    seconds = time.perf_counter() - began
    cpu = sum(json.loads(one)["cpu"] for one in said)
    bench = report.Bench("members", f"{server.kind}, {count:,} members")
    of_one = round((_used(server) - empty) / count, 1)
    bar = _BARS[server.kind] if count >= _MANY else ""
    return [
        bench.one("loaded", round(count / seconds), "members/s",
                  beside=f"{cpu / count * 1e6:.1f} us of client CPU a member"),
        bench.one("memory of a member", of_one, "bytes", bar),
    ]  # fmt: skip


def _used(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("memory")["used_memory"])


async def _loader(url: str, count: int, first: int, last: int) -> None:
    async with place.queue(url, count) as queue:
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.process_time()
        begins = iter(range(first, last, _ROWS))
        puts = (_put(queue, count, begins, last) for _ in range(_SIDE_BY_SIDE))
        await asyncio.gather(*puts)
        print(json.dumps({"cpu": time.process_time() - begun}), flush=True)


async def _put(queue: delayqueue.DelayQueue, count: int, begins: Iterator[int], last: int) -> None:
    record = place.the_set(queue, count)
    for first in begins:
        rows = place.wanted(first, min(last, first + _ROWS))
        try:
            answers = await queue.members.put(record, rows)
        except errors.TryLater as trouble:  # it may have happened
            report.say(f"put again: {trouble}")
            answers = await queue.members.put(record, rows)
        refused = [one for one in answers if one.outcome not in _STORED]
        if refused:
            raise SystemExit(f"{len(refused)} rows were not created, the first: {refused[0]}")
        if first % _SAID < _ROWS:
            report.say(f"{first:,} members")


if __name__ == "__main__":
    gc.freeze()  # as the processes do
    gc.set_threshold(*app.GC_THRESHOLDS)
    uvloop.run(_loader(sys.argv[1], *map(int, sys.argv[2:5])))
