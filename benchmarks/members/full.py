"""A full set: does its size delay firings, creates, gets or lists?

The worker fires 10,000 Schedules a second while one process creates 5,000 members a minute and
another one reads (``clients``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from benchmarks import report
from benchmarks.members import clients, firings
from benchmarks.report import Figure
from duepoint.delayqueue import delayqueue
from tests.support.redisserver import RedisServer

RATE = int(report.number("RATE", 10_000, 1_000))
SECONDS = report.number("SECONDS", 600, 10)


async def run(
    queue: delayqueue.DelayQueue, server: RedisServer, count: int
) -> AsyncIterator[Figure]:
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
