"""One sweep at full speed over everything, by the leader's own service; nothing is wrong."""

from __future__ import annotations

import asyncio
import time

from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from duepoint import clock as clocks
from duepoint import telemetry
from duepoint.controller.maintenance import sweeper
from duepoint.delayqueue import delayqueue
from tests.support.terms import a_term

NAME = "scale-sweep"
#: 30 million in 120 seconds.
_RATE = 250_000


async def run(queue: delayqueue.DelayQueue, case: str, count: int) -> Figure:
    service = sweeper.SweepRounds(
        a_term(clocks.SystemClock(), queue=queue, epoch=points_place.EPOCH),
        watermark_us=lambda _: 0,
    )
    repairs = _repairs()
    service.suspect()
    service.request()
    began, cpu = time.perf_counter(), time.process_time()
    running = asyncio.create_task(service.run())
    while not service.sweeps:  # noqa: ASYNC110 - the service does not signal it
        await asyncio.sleep(0.02)
    seconds = time.perf_counter() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert _repairs() == repairs, "the sweep found something to mend"
    per_schedule_us = (time.process_time() - cpu) / count * 1e6
    return Figure(
        benchmark=NAME, figure=f"sweep at full speed: {case}", unit="s", value=round(seconds, 2),
        bar=f"<= {round(count / _RATE, 2)}",
        compared_with=f"{count / seconds:,.0f} schedules/s, {per_schedule_us:.2f} us of client CPU"
        " each; the bar is that of 30 million in 120 s",
    )  # fmt: skip


def _repairs() -> float:
    return sum(
        sample.value
        for metric in telemetry.sweep_repairs_total.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    )
