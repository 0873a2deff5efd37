"""Another number of shards under load: how long does a schedule wait, and how fast do they move?

Operator and two workers as processes; five thousand Schedules that are due next year, and forty
that fire every second into a receiver that only notes the time. ``duepoint queue partition`` is run
as a user would. The pause is the greatest lateness of a slot while the index is being cut.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import sys
import time
from collections.abc import Iterator

from benchmarks import lateness, report, scene
from benchmarks.report import Figure
from benchmarks.stolen import Stolen
from tests.e2e.test_firing import slot_us
from tests.support.stack import Delivery, Stack

NAME = "partition"
RESTING = 5_000
TICKING = 40
SHARDS = (64, 256)
BEFORE_SECONDS = 15
AFTER_SECONDS = 8
_SECOND_US = 1_000_000


async def run() -> list[Figure]:
    async with scene.stack() as stack, lateness.sink() as sink:
        await stack.running()
        await stack.worker("worker-2").wait_until_ready()
        report.say(f"{RESTING} Schedules at rest, {TICKING} that fire every second")
        await _apply(stack, sink.port)
        began_us = time.time_ns() // 1000
        await asyncio.sleep(BEFORE_SECONDS)
        stolen = Stolen.from_now()
        report.say(f"{SHARDS[0]} -> {SHARDS[1]} shards")
        cut_us = time.time_ns() // 1000
        await _partition(stack)
        done_us = time.time_ns() // 1000
        stolen_percent = stolen.percent()
        await asyncio.sleep(AFTER_SECONDS)
        arrived = await sink.stop()
    last_us = done_us + _SECOND_US * AFTER_SECONDS // 2
    slots = [one for one in arrived if began_us <= slot_us(one.slot) < last_us]
    return [*_figures(slots, cut_us, done_us), _stolen(stolen_percent)]


async def _apply(stack: Stack, port: int) -> None:
    gate = asyncio.Semaphore(16)

    async def apply(name: str, spec: dict[str, object]) -> None:
        async with gate:
            await stack.apply(name, spec)

    yearly = {"schedule": "0 0 1 1 *", "stream": {"name": "new-year"}}
    url = f"http://127.0.0.1:{port}/"
    each_second = {"schedule": "@every 1s", "catchUpPolicy": "All", "webhook": {"url": url}}
    await asyncio.gather(*(apply(f"rest-{number}", yearly) for number in range(RESTING)))
    await asyncio.gather(*(apply(f"tick-{number}", each_second) for number in range(TICKING)))
    for number in range(TICKING):
        await stack.wait_until_ready(f"tick-{number}")


async def _partition(stack: Stack) -> None:
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "duepoint", "queue", "partition", "--shards", str(SHARDS[1]),
        "--redis-url", stack.redis.url_of("operator"), "--output", "json",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await command.communicate()
    for line in output.decode().splitlines():
        report.say(line)
    if command.returncode != 0:
        raise RuntimeError("the index was not cut anew")


def _figures(deliveries: list[Delivery], cut_us: int, done_us: int) -> Iterator[Figure]:
    rows = collections.defaultdict(list)
    for one in deliveries:
        rows[one.schedule].append(slot_us(one.slot))
    doubled = sum(len(row) - len(set(row)) for row in rows.values())
    gaps = sum(
        (after - before) // _SECOND_US - 1
        for row in rows.values()
        for before, after in itertools.pairwise(sorted(set(row)))
    )
    silent = (TICKING - len(rows)) * (done_us - cut_us) // _SECOND_US
    yield Figure(benchmark=NAME, figure="slots lost", value=gaps + silent, unit="slots",
                 bar="= 0", runs=len(deliveries))  # fmt: skip
    yield Figure(benchmark=NAME, figure="slots doubled", value=doubled, unit="slots", bar="= 0",
                 runs=len(deliveries))  # fmt: skip
    before = [_late_ms(one) for one in deliveries if slot_us(one.slot) < cut_us]
    during = [_late_ms(one) for one in deliveries if cut_us <= slot_us(one.slot) < done_us]
    for word, late in (("before", before), ("while it is cut", during)):
        yield Figure(
            benchmark=NAME,
            figure=f"lateness p99 {word}",
            value=report.percentile(late, 0.99),
            unit="ms",
            spread=(min(late), max(late)),
            runs=len(late),
        )
    yield Figure(benchmark=NAME, figure="longest pause", value=max(during), unit="ms",
                 bar="<= 3000", runs=len(during))  # fmt: skip
    seconds = (done_us - cut_us) / _SECOND_US
    yield Figure(
        benchmark=NAME,
        figure="time for everything",
        value=seconds,
        unit="s",
        compared_with=f"{RESTING + TICKING} Schedules, {SHARDS[0]} -> {SHARDS[1]} shards",
    )


def _stolen(percent: float) -> Figure:
    return Figure(
        benchmark=NAME,
        figure="processor time stolen by the host",
        value=percent,
        unit="% of the time measured",
    )


def _late_ms(one: Delivery) -> float:
    return (one.arrived_us - slot_us(one.slot)) / 1000
