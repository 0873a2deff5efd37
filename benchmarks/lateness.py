"""Twenty Schedules every second, webhook target, for a minute: lost, doubled, early, late?

Slots are counted from the deliveries, never from Duepoint's own records: between the first and
the last slot of each Schedule that arrived, every second must have exactly one delivery. Lateness
is the receiver's clock at arrival less the slot; receiver and worker share this machine.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterator

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.e2e.test_firing import slot_us
from tests.support.stack import Stack

SCHEDULES = 20
SECONDS = 60
NAME = "lateness"


async def run() -> list[Figure]:
    async with scene.stack() as stack:
        await stack.running()
        report.say(f"{SCHEDULES} Schedules @every 1s for {SECONDS} s")
        await asyncio.gather(*(_apply(stack, number) for number in range(SCHEDULES)))
        await asyncio.gather(
            *(stack.wait_until_ready(f"tick-{number}") for number in range(SCHEDULES))
        )
        stack.deliveries.clear()
        await asyncio.sleep(SECONDS)
        return list(_figures(stack))


async def _apply(stack: Stack, number: int) -> None:
    # All: a stall of this shared machine makes slots late, never lost.
    spec = {"schedule": "@every 1s", "catchUpPolicy": "All", "webhook": stack.webhook()}
    await stack.apply(f"tick-{number}", spec)


def _figures(stack: Stack) -> Iterator[Figure]:
    arrivals = collections.Counter((one.schedule, slot_us(one.slot)) for one in stack.deliveries)
    lost = 0
    for number in range(SCHEDULES):
        slots = {slot for schedule, slot in arrivals if schedule == f"tick-{number}"}
        expected = (max(slots) - min(slots)) // 1_000_000 + 1
        lost += expected - len(slots)
    late = [(one.arrived_us - slot_us(one.slot)) / 1000 for one in stack.deliveries]
    count = len(late)
    spread = (min(late), max(late))
    yield Figure(benchmark=NAME, figure="slots lost", value=lost, unit="slots", bar="= 0",
                 runs=count)  # fmt: skip
    doubled = sum(number - 1 for number in arrivals.values())
    yield Figure(benchmark=NAME, figure="slots doubled", value=doubled, unit="slots", bar="= 0",
                 runs=count)  # fmt: skip
    early = sum(1 for one in late if one < 0)
    yield Figure(benchmark=NAME, figure="slots early", value=early, unit="slots", bar="= 0",
                 runs=count)  # fmt: skip
    for share, bar in ((0.5, ""), (0.99, "<= 25")):
        yield Figure(
            benchmark=NAME,
            figure=f"lateness p{share * 100:g}",
            value=report.percentile(late, share),
            unit="ms",
            bar=bar,
            spread=spread,
            runs=count,
        )
