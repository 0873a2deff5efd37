"""Twenty Schedules every second, webhook target, for a minute: lost, doubled, early, late?

Slots are counted from the deliveries, never from Duepoint's own records: a Schedule created at a
whole second has a slot at every whole second, so each second of the window must have exactly one
delivery of each Schedule. Lateness is the receiver's clock at arrival less the slot; receiver and
worker share this machine.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Iterator

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.e2e.test_firing import slot_us
from tests.support.stack import Delivery, Stack

SCHEDULES = 20
SECONDS = 60
#: A slot that has not arrived so long after the window is lost.
GRACE_SECONDS = 5
NAME = "lateness"


async def run() -> list[Figure]:
    async with scene.stack() as stack:
        await stack.running()
        report.say(f"{SCHEDULES} Schedules @every 1s for {SECONDS} s")
        await asyncio.gather(*(_apply(stack, number) for number in range(SCHEDULES)))
        await asyncio.gather(
            *(stack.wait_until_ready(f"tick-{number}") for number in range(SCHEDULES))
        )
        first = int(time.time()) + 1
        await asyncio.sleep(SECONDS + GRACE_SECONDS)
        window = range(first, first + SECONDS)
        within = [one for one in stack.deliveries if slot_us(one.slot) // 1_000_000 in window]
        return list(_figures(within, window))


async def _apply(stack: Stack, number: int) -> None:
    # All: a stall of this shared machine makes slots late, never lost.
    spec = {"schedule": "@every 1s", "catchUpPolicy": "All", "webhook": stack.webhook()}
    await stack.apply(f"tick-{number}", spec)


def _figures(deliveries: list[Delivery], window: range) -> Iterator[Figure]:
    arrivals = collections.Counter((one.schedule, slot_us(one.slot)) for one in deliveries)
    expected = {
        (f"tick-{number}", second * 1_000_000) for number in range(SCHEDULES) for second in window
    }
    lost = len(expected - arrivals.keys())
    late = [(one.arrived_us - slot_us(one.slot)) / 1000 for one in deliveries]
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
