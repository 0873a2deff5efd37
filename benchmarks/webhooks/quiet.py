"""How late a quiet Schedule is while another receiver hangs on every request, beside idle.

One worker with the product's limits sends to two processes: one answers and notes when, the other
takes everything and says nothing. The quiet Schedules fire each second all the time; a busy
namespace's Schedules, all to the receiver that hangs, only in every other part, spread over each
second, because it is the hanging that is measured and not a burst. Lateness is the arrival less
the slot. Parts take turns, so that the machine's bad seconds fall on both.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
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
#: Left out at the beginning of each part: what was under way in the part before.
SETTLING_SECONDS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured."""

    parts: int
    seconds: int
    quiet: int = 10
    hanging: int = 50


def size(*, small: bool) -> Size:
    return Size(parts=2, seconds=8) if small else Size(parts=6, seconds=40)


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
    wants = webhookscene.Wants(workers=1, per_host=32, concurrency=256)
    async with (
        webhookscene.scene(url, "dp:", wants) as scene,
        server.noting() as notes,
        server.serving("hangs") as hangs,
        scene.working(),
    ):
        begins_us = (time.time_ns() // 1_000_000_000 + 2) * SECOND_US
        ends_us = begins_us + wanted.parts * wanted.seconds * SECOND_US
        quiet, busy = _webhook(notes.port), _webhook(hangs)
        for number in range(wanted.quiet):
            await scene.arm(
                f"quiet-{number}", quiet, every="1s", start_us=begins_us, end_us=ends_us - 1
            )
        for part in range(1, wanted.parts, 2):
            start_us = begins_us + part * wanted.seconds * SECOND_US
            for number in range(wanted.hanging):
                await scene.arm(
                    f"busy-{part}-{number}",
                    busy,
                    every="1s",
                    start_us=start_us + number * SECOND_US // wanted.hanging,
                    end_us=start_us + wanted.seconds * SECOND_US - 1,
                    namespace="busy",
                )
        report.say(f"{wanted.parts} parts of {wanted.seconds} s, idle and beside one that hangs")
        await asyncio.sleep(ends_us / SECOND_US - time.time() + 1)
        noted = await notes.stop()
    return _figures(noted, begins_us, wanted)


def _webhook(port: int) -> actions.WebhookAction:
    return actions.WebhookAction(url=f"http://127.0.0.1:{port}/", timeout_seconds=30)


def _figures(noted: list[tuple[int, bytes]], begins_us: int, wanted: Size) -> list[Figure]:
    late: dict[bool, list[float]] = {False: [], True: []}
    for arrived_us, body in noted:
        slot_us = times.parse_us(json.loads(body)["data"]["scheduled_time"])
        part, within = divmod((slot_us - begins_us) // SECOND_US, wanted.seconds)
        if within >= SETTLING_SECONDS:
            late[part % 2 == 1].append((arrived_us - slot_us) / 1000)
    expected = wanted.parts * (wanted.seconds - SETTLING_SECONDS) * wanted.quiet
    idle, beside = (report.percentile(late[hangs], 0.99) for hangs in (False, True))
    medians = [report.percentile(late[hangs], 0.5) for hangs in (False, True)]
    return [
        Figure(
            benchmark=NAME,
            figure="p99 lateness of a quiet Schedule beside a receiver that hangs",
            value=round(beside / idle, 2),
            unit="times its idle value",
            bar="<= 2",
            runs=len(late[True]),
            compared_with=f"idle p99 {idle:.2f} ms, beside {beside:.2f} ms; "
            f"medians {medians[0]:.2f} and {medians[1]:.2f} ms",
        ),
        Figure(
            benchmark=NAME,
            figure="quiet deliveries lost meanwhile",
            value=expected - len(late[False]) - len(late[True]),
            unit="slots",
            bar="= 0",
            runs=expected,
        ),
    ]
