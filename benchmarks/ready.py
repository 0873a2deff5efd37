"""How soon an applied Schedule is Ready, and a deleted one silent, on a calm cluster."""

from __future__ import annotations

import asyncio
import time

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.e2e.test_firing import slot_us
from tests.support.stack import Stack

APPLIES = 100
DELETES = 10
NAME = "ready"


async def run() -> list[Figure]:
    async with scene.stack() as stack:
        await stack.running()
        report.say(f"{APPLIES} applies, one after the other, each until Ready")
        waits = [await _apply(stack, number) for number in range(APPLIES)]
        report.say(f"{DELETES} deletions of Schedules that fire every second")
        late = await _delete(stack)
    spread = (min(waits), max(waits))
    return [
        Figure(benchmark=NAME, figure="apply to Ready p50", value=report.percentile(waits, 0.5),
               unit="ms", spread=spread, runs=len(waits)),
        Figure(benchmark=NAME, figure="apply to Ready p99", value=report.percentile(waits, 0.99),
               unit="ms", bar="<= 500", spread=spread, runs=len(waits)),
        Figure(benchmark=NAME, figure="deliveries more than 1 s after a deletion", value=late,
               unit="deliveries", bar="= 0", runs=DELETES),
    ]  # fmt: skip


async def _apply(stack: Stack, number: int) -> float:
    name = f"calm-{number}"
    started = time.monotonic()
    await stack.apply(name, {"schedule": "@every 24h", "webhook": stack.webhook()})
    found = await stack.wait_until_ready(name)
    waited = (time.monotonic() - started) * 1000
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    return waited


async def _delete(stack: Stack) -> int:
    names = [f"brief-{number}" for number in range(DELETES)]
    for name in names:
        await stack.apply(name, {"schedule": "@every 1s", "webhook": stack.webhook()})
    for name in names:
        await stack.wait_for_deliveries(1, name)
    deleted_us = {}
    for name in names:
        await stack.delete(name)
        deleted_us[name] = time.time_ns() // 1000
    await asyncio.sleep(4)
    return sum(
        slot_us(one.slot) > deleted_us[one.schedule] + 1_000_000
        for one in stack.deliveries
        if one.schedule in deleted_us
    )
