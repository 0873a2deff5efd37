"""A full set: does its size delay firings, creates, gets or lists?

The real worker fires 10,000 Schedules a second (as in ``scale.creating``) while one process creates
5,000 members a minute and another one reads (``clients``); ``SECONDS`` says for how long, ten
minutes unless set.
"""

from __future__ import annotations

import asyncio

from benchmarks import report
from benchmarks.members import clients
from benchmarks.queuespeed import calm
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from benchmarks.scale import creating
from duepoint.delayqueue import delayqueue
from duepoint.targets import target
from tests.support.redisserver import RedisServer

NAME = "members-full"


async def run(
    queue: delayqueue.DelayQueue, server: RedisServer, count: int, *, rate: int, seconds: float
) -> list[Figure]:
    """So many firings a second for so long, beside the two clients."""
    noted = creating.NotesTimes()
    noted.from_us = await creating.arm(queue, rate)
    work = calm.a_worker(queue, target.Targets(job=noted, webhook=noted, stream=noted))
    running = asyncio.create_task(work.run())
    await asyncio.sleep((noted.from_us - points_place.now_us()) / 1_000_000)
    report.say(f"{server.kind}: {rate:,} firings/s for {seconds:g} s")
    creates, reads = await asyncio.gather(
        clients.run(server, "create", count, seconds), clients.run(server, "read", count, seconds)
    )
    work.drain()
    await running
    case = f"{server.kind}, {count:,} members beside {rate:,} firings/s"
    late, created = noted.late_ms, len(creates["create"])
    return [
        Figure(
            benchmark=NAME, figure=f"lateness p99: {case}", unit="ms", bar="<= 50", runs=len(late),
            value=round(report.percentile(late, 0.99), 2),
            spread=(round(min(late), 2), round(max(late), 2)),
            compared_with=f"{len(late) / seconds:,.0f} firings/s; p50"
            f" {report.percentile(late, 0.5):.2f} ms",
        ),
        Figure(
            benchmark=NAME, figure=f"created meanwhile: {case}", unit="a minute",
            value=round(created / seconds * 60), bar=f">= {clients.CREATES_A_MINUTE * 0.99}",
        ),
        *(
            _took(f"{what} p99: {case}", took, bar)
            for what, took, bar in (
                ("create", creates["create"], ""),
                ("get", reads["get"], "<= 20"),
                ("list of 100", reads["list"], "<= 20"),
            )
        ),
    ]  # fmt: skip


def _took(figure: str, took_ms: list[float], bar: str) -> Figure:
    return Figure(
        benchmark=NAME, figure=figure, unit="ms", bar=bar, runs=len(took_ms),
        value=round(report.percentile(took_ms, 0.99), 2),
        spread=(round(min(took_ms), 2), round(max(took_ms), 2)),
        compared_with=f"p50 {report.percentile(took_ms, 0.5):.2f} ms",
    )  # fmt: skip
