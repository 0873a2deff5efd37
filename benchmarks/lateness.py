"""Twenty Schedules every second, webhook target, for a minute: lost, doubled, early, late?

Two workers, as the chart installs them.

Slots are counted from the deliveries, never from Duepoint's own records: a Schedule created at a
whole second has a slot at every whole second, so each second of the window must have exactly one
delivery of each Schedule. Lateness is the receiver's clock at arrival less the slot; receiver and
worker share this machine. The receiver is a process of its own that only notes the time.

Afterwards a bare loop posts as many requests at each second to the same receiver: what it is late
is the machine's own part, and so is the time that its host gave to others meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator

from benchmarks import bareposts, report, scene
from benchmarks.report import Figure
from benchmarks.stolen import Stolen
from duepoint.worker import keepalive
from tests.e2e.test_firing import slot_us
from tests.support.stack import Delivery, Stack

SCHEDULES = 20
SECONDS = 60
#: Left out at the beginning: every receiver's connection is opened then, every module loaded.
STARTING_SECONDS = 3
#: The bare loop's turn.
BARE_SECONDS = 30
#: A slot that has not arrived so long after the window is lost.
GRACE_SECONDS = 5
NAME = "lateness"


async def run() -> list[Figure]:
    async with scene.stack() as stack, sink() as receiver:
        await stack.running()
        await stack.worker("worker-2").wait_until_ready()
        report.say(f"{SCHEDULES} Schedules @every 1s for {SECONDS} s")
        await tick(stack, receiver.port)
        first = int(time.time()) + STARTING_SECONDS
        await asyncio.sleep(STARTING_SECONDS)
        stolen = Stolen.from_now()
        await asyncio.sleep(SECONDS)
        stolen_percent = stolen.percent()
        await asyncio.sleep(GRACE_SECONDS)
        for number in range(SCHEDULES):
            await stack.delete(f"tick-{number}")
        report.say("as many requests by a bare loop")
        await bareposts.post_each_second(receiver.port, seconds=BARE_SECONDS, requests=SCHEDULES)
        window = range(first, first + SECONDS)
        arrived = await receiver.stop()
    bare = [one for one in arrived if one.schedule == bareposts.NAME]
    ours = [one for one in arrived if slot_us(one.slot) // 1_000_000 in window]
    return [*_figures(ours, window), *_machine(bare, stolen_percent)]


class _Sink:
    """The receiver's process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self._process = process

    async def stop(self) -> list[Delivery]:
        """Everything that arrived."""
        self._process.terminate()
        output, _ = await self._process.communicate()
        return [_delivery(line) for line in output.splitlines()]


@contextlib.asynccontextmanager
async def sink(*words: str) -> AsyncIterator[_Sink]:
    """The receiver; with the word ``close`` it closes each connection after its answer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.sink", *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield _Sink(process, int(await process.stdout.readline()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _delivery(line: bytes) -> Delivery:
    arrived, _, body = line.partition(b" ")
    return Delivery(arrived_us=int(arrived), path="/", webhook_id="", body=json.loads(body))


async def tick(stack: Stack, port: int) -> None:
    """So many Schedules, ``tick-NUMBER``, fire every second from now on, by workers in order."""
    report.say("the workers agree on who looks at what")
    await asyncio.sleep(keepalive.BEAT_SECONDS + 1)
    await asyncio.gather(*(_apply(stack, number, port) for number in range(SCHEDULES)))
    await asyncio.gather(*(stack.wait_until_ready(f"tick-{number}") for number in range(SCHEDULES)))


async def _apply(stack: Stack, number: int, port: int) -> None:
    # All: a stall of this shared machine makes slots late, never lost.
    webhook = {"url": f"http://127.0.0.1:{port}/"}
    spec = {"schedule": "@every 1s", "catchUpPolicy": "All", "webhook": webhook}
    await stack.apply(f"tick-{number}", spec)


def _figures(deliveries: list[Delivery], window: range) -> Iterator[Figure]:
    arrivals = collections.Counter((one.schedule, slot_us(one.slot)) for one in deliveries)
    expected = {
        (f"tick-{number}", second * 1_000_000) for number in range(SCHEDULES) for second in window
    }
    lost = len(expected - arrivals.keys())
    late = [late_ms(one) for one in deliveries]
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


def _machine(bare: list[Delivery], stolen_percent: float) -> Iterator[Figure]:
    late = [late_ms(one) for one in bare]
    for share in (0.5, 0.99):
        yield Figure(
            benchmark=NAME,
            figure=f"bare loop's lateness p{share * 100:g}",
            value=report.percentile(late, share),
            unit="ms",
            spread=(min(late), max(late)),
            runs=len(late),
            compared_with="a loop that only posts, same requests, same receiver",
        )
    yield Figure(
        benchmark=NAME,
        figure="processor time stolen by the host",
        value=stolen_percent,
        unit="% of the time measured",
    )


def late_ms(one: Delivery) -> float:
    """How long after its slot it arrived."""
    return (one.arrived_us - slot_us(one.slot)) / 1000
