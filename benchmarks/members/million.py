"""Members of a set by the million: loaded, fired beside, deleted.

``deletion`` loads ``COUNT`` members and deletes their set beside firings. ``full`` shows whether so
many delay anything: for ``SECONDS`` a worker fires ``RATE`` Schedules a second, one process creates
5,000 members a minute, and another one reads (``clients``). ``KIND=redis-server`` chooses another
server than Valkey. Ten million members need some 2 GB of memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from benchmarks import report
from benchmarks.members import clients, deletion, firings, loading, place
from benchmarks.queuespeed import place as queueplace
from benchmarks.report import Figure
from duepoint.delayqueue import delayqueue
from tests.support.redisserver import RedisServer

COUNT = int(report.number("COUNT", 1_000_000, 50_000))
RATE = int(report.number("RATE", 10_000, 1_000))
SECONDS = report.number("SECONDS", 600, 10)


async def run(*parts: str) -> AsyncIterator[Figure]:
    kind = os.environ.get("KIND", "valkey")
    for part in parts or _PARTS:
        # Hashes of this length stay compact, as the operator asks of a server.
        with queueplace.server(kind, "--hash-max-listpack-entries", "512") as server:
            async with place.queue(server.url, COUNT) as queue:
                await place.store(queue, COUNT)
                for figure in await loading.load(server, COUNT):
                    yield figure
                async for figure in _PARTS[part](queue, server, COUNT):
                    yield figure


async def _full(
    queue: delayqueue.DelayQueue, server: RedisServer, count: int
) -> AsyncIterator[Figure]:
    """Measure lateness, creates, gets and lists beside the full set."""
    async with firings.going_on(queue, RATE) as noted:
        report.say(f"{server.kind}: {RATE:,} firings/s for {SECONDS:g} s")
        creates, reads = await asyncio.gather(
            clients.run(server, "create", count, SECONDS),
            clients.run(server, "read", count, SECONDS),
        )
    fired = f"{len(noted.late_ms) / SECONDS:,.0f} firings/s"
    bench = report.Bench("members", f"{server.kind}, {count:,} members beside {fired}")
    yield bench.share("lateness", 0.5, noted.late_ms)
    yield bench.share("lateness", 0.99, noted.late_ms, "<= 50")
    created = round(len(creates["create"]) / SECONDS * 60)
    bar = f">= {clients.CREATES_A_MINUTE * 0.99}"
    yield bench.one("created meanwhile", created, "a minute", bar)
    for what, took_ms, bar in (
        ("create", creates["create"], ""),
        ("get", reads["get"], "<= 20"),
        ("list of 100", reads["list"], "<= 20"),
    ):
        yield bench.share(what, 0.99, took_ms, bar)


_PARTS = {"deletion": deletion.run, "full": _full}
