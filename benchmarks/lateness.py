"""Twenty webhook Schedules every second for a minute: what is lost, doubled, early, and how late?

Two workers run, as the chart installs them. Slots are counted from the deliveries, never from
Duepoint's own records: each second must have exactly one delivery of each Schedule. Lateness is the
receiver's clock at arrival less the slot; the receiver is a process on this machine.

Afterwards a bare loop posts as many requests at each second to the same receiver. Its lateness, and
the time that the host gave to other guests, is the machine's own part.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import math
import time
from collections.abc import Iterator

import aiohttp

from benchmarks import receivers, report, scene
from benchmarks.report import Figure
from duepoint.worker import keepalive
from tests.e2e.test_firing import slot_us
from tests.support.stack import Delivery, Stack

SCHEDULES = 20
SECONDS = int(report.number("SECONDS", 60, 10))
#: Not measured: the first requests open connections and load modules.
STARTING_SECONDS = 3
BARE_SECONDS = SECONDS // 2
BARE = "bare"
#: A slot that has not arrived so long after the window is lost.
GRACE_SECONDS = 5


async def run() -> list[Figure]:
    async with scene.stack() as stack, receivers.started() as receiver:
        await stack.running()
        await stack.worker("worker-2").wait_until_ready()
        report.say(f"{SCHEDULES} Schedules @every 1s for {SECONDS} s")
        await _tick(stack, receiver.port)
        first = int(time.time()) + STARTING_SECONDS
        await asyncio.sleep(STARTING_SECONDS)
        stolen = scene.Stolen()
        await asyncio.sleep(SECONDS)
        stolen_percent = stolen.percent()
        await asyncio.sleep(GRACE_SECONDS)
        for number in range(SCHEDULES):
            await stack.delete(f"tick-{number}")
        report.say("as many requests by a bare loop")
        await _post_each_second(receiver.port)
        arrived = await receiver.stop()
    window = range(first, first + SECONDS)
    bare = [one for one in arrived if one.schedule == BARE]
    ours = [one for one in arrived if slot_us(one.slot) // 1_000_000 in window]
    return [*_figures(ours, bare, window), _stolen(stolen_percent)]


async def _tick(stack: Stack, port: int) -> None:
    """Let the Schedules ``tick-NUMBER`` fire every second from now on."""
    report.say("waiting until the workers have divided the shards")
    await asyncio.sleep(keepalive.BEAT_SECONDS + 1)
    # All: a stall of this shared machine makes slots late, never lost.
    webhook = {"url": f"http://127.0.0.1:{port}/"}
    spec = {"schedule": "@every 1s", "catchUpPolicy": "All", "webhook": webhook}
    names = [f"tick-{number}" for number in range(SCHEDULES)]
    await asyncio.gather(*(stack.apply(name, spec) for name in names))
    await asyncio.gather(*(stack.wait_until_ready(name) for name in names))


async def _post_each_second(port: int) -> None:
    """Post the bare loop's requests, all of a second at once."""
    first = math.floor(time.time()) + 2
    async with aiohttp.ClientSession() as session:

        async def post(body: object) -> None:
            async with session.post(f"http://127.0.0.1:{port}/", json=body) as answer:
                await answer.read()

        for second in range(first, first + BARE_SECONDS):
            await asyncio.sleep(second - time.time())
            slot = dt.datetime.fromtimestamp(second, dt.UTC).isoformat()
            body = {"data": {"scheduled_time": slot, "schedule": {"name": BARE}}}
            await asyncio.gather(*(post(body) for _ in range(SCHEDULES)))


def _figures(ours: list[Delivery], bare: list[Delivery], window: range) -> Iterator[Figure]:
    bench = report.Bench("lateness")
    arrivals = collections.Counter((one.schedule, slot_us(one.slot)) for one in ours)
    expected = {
        (f"tick-{number}", second * 1_000_000) for number in range(SCHEDULES) for second in window
    }
    late, bare_late = [late_ms(one) for one in ours], [late_ms(one) for one in bare]
    doubled = sum(number - 1 for number in arrivals.values())
    for what, count in (
        ("lost", len(expected - arrivals.keys())),
        ("doubled", doubled),
        ("early", sum(one < 0 for one in late)),
    ):
        yield bench.one(f"slots {what}", count, "slots", "= 0", runs=len(late))
    yield bench.share("lateness", 0.5, late)
    yield bench.share("lateness", 0.99, late, "<= 25")
    for share in (0.5, 0.99):
        yield bench.share("lateness of a bare loop of POSTs", share, bare_late)


def _stolen(percent: float) -> Figure:
    figure = "processor time that the host gave to others"
    return report.Bench("lateness").one(figure, round(percent, 1), "%")


def late_ms(one: Delivery) -> float:
    """Return how long after its slot a delivery arrived."""
    return (one.arrived_us - slot_us(one.slot)) / 1000
