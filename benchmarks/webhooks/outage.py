"""A receiver that is down for ten minutes and then back: what arrives, when, and how fast.

Two workers with the product's own rules and limits; Schedules of several periods, one of them so
frequent that more than 100 of its deliveries wait, of which the oldest become dead letters. While
it is down the receiver refuses half of the time and hangs the other half. DOWN names other seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.report import Figure
from duepoint import telemetry
from duepoint.schedules import actions
from tests.support import webhookscene
from tests.support.redisserver import RedisServer

NAME = "webhook outage"
SECOND_US = 1_000_000
#: Periods, and how many Schedules have each.
PERIODS = (("2s", 2), ("10s", 5), ("30s", 10), ("1m", 20))
PER_HOST = 8
WORKERS = 2
#: Before the outage and after it.
WELL_SECONDS = 10
DRAIN_SECONDS = 1200


async def run(*, small: bool) -> list[Figure]:
    telemetry.configure_logging("error", "text")
    down_seconds = float(os.environ.get("DOWN", "30" if small else "600"))
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer("valkey", Path(folder))
        redis.start()
        try:
            return await _measured(redis.url, down_seconds)
        finally:
            redis.stop()


class Watched(webhookscene.Receiver):
    """Attributes:
    early: requests that came before they were due.
    """

    def __init__(self, scene: webhookscene.Scene) -> None:
        super().__init__(seconds=0.01)
        self._scene = scene
        self.early = 0

    def arrived(self, webhook_id: str) -> bytes | None:
        self.early += time.time_ns() // 1000 < self._scene.due_of(webhook_id)
        return super().arrived(webhook_id)


async def _measured(url: str, down_seconds: float) -> list[Figure]:
    wants = webhookscene.Wants(workers=WORKERS, per_host=PER_HOST, concurrency=256)
    async with webhookscene.scene(url, "dp:", wants) as scene:
        watched = Watched(scene)
        async with webhookscene.receiving(watched) as hears, scene.working():
            await _arm(scene, hears.port, down_seconds)
            await asyncio.sleep(WELL_SECONDS)
            report.say(f"down for {down_seconds:g} s")
            hears.mood = webhookscene.FAILS
            await asyncio.sleep(down_seconds / 2)
            hears.mood = webhookscene.HANGS
            await asyncio.sleep(down_seconds / 2)
            asked_while_down = sum(not one.accepted for one in hears.arrivals)
            hears.mood, back = webhookscene.WELL, time.monotonic()
            report.say("back")
            missing = await _drained(scene, hears)
            seconds = time.monotonic() - back
    return list(_figures(scene, watched, missing, seconds, asked_while_down))


async def _arm(scene: webhookscene.Scene, port: int, down_seconds: float) -> None:
    webhook = actions.WebhookAction(url=f"http://127.0.0.1:{port}/", timeout_seconds=10)
    begins_us = (time.time_ns() // 1_000_000_000 + 2) * SECOND_US
    ends_us = begins_us + int((WELL_SECONDS + down_seconds) * SECOND_US)
    for period, count in PERIODS:
        for number in range(count):
            await scene.arm(
                f"every-{period}-{number}",
                webhook,
                every=period,
                start_us=begins_us + number * 100_000,
                end_us=ends_us,
            )


async def _drained(scene: webhookscene.Scene, hears: webhookscene.Receiver) -> set[str]:
    """What has neither arrived nor become a dead letter, in the end."""
    missing = set(scene.expected)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while missing:
                await asyncio.sleep(0.5)
                arrived = {one.webhook_id for one in hears.accepted()}
                missing = set(scene.expected) - arrived - await scene.dead()
    return missing


def _figures(
    scene: webhookscene.Scene,
    hears: Watched,
    missing: set[str],
    seconds: float,
    asked_while_down: int,
) -> list[Figure]:
    arrived = {one.webhook_id for one in hears.accepted()}
    figures = (
        ("neither arrived nor dead", len(missing), "deliveries", "= 0"),
        ("accepted twice", len(webhookscene.twice(hears.arrivals)), "deliveries", "= 0"),
        ("before they were due", hears.early, "requests", "= 0"),
        ("most open at a time", hears.most_open, "requests", f"<= {WORKERS * PER_HOST}"),
        ("until all had arrived", round(seconds, 1), "s", ""),
        ("requests while it was down", asked_while_down, "requests", ""),
        ("given up: beyond 100 that wait", len(set(scene.expected) - arrived), "deliveries", ""),
    )
    return [
        Figure(
            benchmark=NAME,
            figure=name,
            value=value,
            unit=unit,
            bar=bar,
            runs=len(scene.expected),
        )
        for name, value, unit, bar in figures
    ]
