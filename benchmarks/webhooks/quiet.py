"""How late a quiet Schedule is while another receiver hangs on every request, beside idle.

One worker with the product's limits sends to two processes: one answers and notes when, the other
takes everything and says nothing. The quiet Schedules fire each second all the time; a busy
namespace's, all to the receiver that hangs, only in every other part. Both are spread over each
second, because it is the hanging that is measured and not a burst. Lateness is the arrival less
the slot. Each part has a worker and a queue of its own, because what hangs would hang on into an
idle one; they are short and take turns, and it is the median of the parts' p99 that counts, so
that a bad second of the machine spoils one part and not the figure.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.report import Figure
from benchmarks.webhooks import server
from duepoint import telemetry
from duepoint.kube import times
from duepoint.schedules import actions
from tests.support import webhookscene
from tests.support.redisserver import RedisServer

NAME = "webhook"
SECOND_US = 1_000_000
#: Left out at the beginning of each part: connections are opened, the limits reached.
SETTLING_SECONDS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured: so many parts of each kind."""

    rounds: int
    seconds: int
    quiet: int = 40
    hanging: int = 50


def size(*, small: bool) -> Size:
    return Size(rounds=2, seconds=10) if small else Size(rounds=4, seconds=13)


async def run(*, small: bool) -> list[Figure]:
    telemetry.configure_logging("error", "text")
    wanted = size(small=small)
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer("valkey", Path(folder))
        redis.start()
        try:
            return await _measured(redis.url, wanted)
        finally:
            redis.stop()


async def _measured(url: str, wanted: Size) -> list[Figure]:
    late: dict[bool, list[list[float]]] = {False: [], True: []}
    for number in range(2 * wanted.rounds):
        hangs = number % 2 == 1
        part = await _part(url, f"dp{number}:", wanted, hangs=hangs)
        late[hangs].append(part)
        beside = "beside one that hangs" if hangs else "idle"
        report.say(f"{beside}: p99 {report.percentile(part, 0.99):.2f} ms of {len(part)}")
    return _figures(late, wanted)


async def _part(url: str, prefix: str, wanted: Size, *, hangs: bool) -> list[float]:
    """Milliseconds by which each delivery of the quiet ones was late."""
    wants = webhookscene.Wants(workers=1, per_host=32, concurrency=256)
    async with (
        webhookscene.scene(url, prefix, wants) as scene,
        server.noting() as notes,
        server.serving("hangs") as hanging,
        scene.working(),
    ):
        begins_us = (time.time_ns() // 1_000_000_000 + 2) * SECOND_US
        ends_us = begins_us + wanted.seconds * SECOND_US
        times_us = begins_us, ends_us
        await _arm(scene, "quiet", wanted.quiet, _webhook(notes.port), times_us)
        if hangs:
            await _arm(scene, "busy", wanted.hanging, _webhook(hanging), times_us)
        await asyncio.sleep(ends_us / SECOND_US - time.time() + 1)
        noted = await notes.stop()
    return _lateness(noted, begins_us + SETTLING_SECONDS * SECOND_US)


async def _arm(
    scene: webhookscene.Scene,
    namespace: str,
    count: int,
    webhook: actions.WebhookAction,
    times_us: tuple[int, int],
) -> None:
    """Schedules of one namespace, spread over the second."""
    begins_us, ends_us = times_us
    for number in range(count):
        start_us = begins_us + number * SECOND_US // count
        await scene.arm(
            f"{namespace}-{number}",
            webhook,
            every="1s",
            start_us=start_us,
            end_us=ends_us - 1,
            namespace=namespace,
        )


def _lateness(noted: list[tuple[int, bytes]], since_us: int) -> list[float]:
    slots = (
        (arrived_us, times.parse_us(json.loads(body)["data"]["scheduled_time"]))
        for arrived_us, body in noted
    )
    return [(arrived_us - slot_us) / 1000 for arrived_us, slot_us in slots if slot_us >= since_us]


def _webhook(port: int) -> actions.WebhookAction:
    return actions.WebhookAction(url=f"http://127.0.0.1:{port}/", timeout_seconds=30)


def _figures(late: dict[bool, list[list[float]]], wanted: Size) -> list[Figure]:
    expected = 2 * wanted.rounds * (wanted.seconds - SETTLING_SECONDS) * wanted.quiet
    arrived = sum(len(part) for parts in late.values() for part in parts)
    worst = {hangs: [report.percentile(one, 0.99) for one in late[hangs]] for hangs in late}
    idle, beside = (statistics.median(worst[hangs]) for hangs in (False, True))
    each = [after / before for before, after in zip(worst[False], worst[True], strict=True)]
    middle = [
        statistics.median(itertools.chain.from_iterable(late[hangs])) for hangs in (False, True)
    ]
    return [
        Figure(
            benchmark=NAME,
            figure="p99 lateness of a quiet Schedule beside a receiver that hangs",
            value=round(beside / idle, 2),
            unit="times its idle value, medians of the parts",
            bar="<= 2",
            spread=(round(min(each), 2), round(max(each), 2)),
            runs=2 * wanted.rounds,
            compared_with=f"idle p99 {idle:.2f} ms, beside {beside:.2f} ms; "
            f"medians {middle[0]:.2f} and {middle[1]:.2f} ms",
        ),
        Figure(
            benchmark=NAME,
            figure="quiet deliveries lost meanwhile",
            value=expected - arrived,
            unit="slots",
            bar="= 0",
            runs=expected,
        ),
    ]
