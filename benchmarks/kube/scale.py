"""Ten thousand Schedules applied at once: how soon are they armed, and when do they have a status?

The API server's own create rate is measured without an operator, once before and once after the
same objects are created beside one, because an API server gets slower with its history. Armed
means that Redis holds just the points that it should; settled, that our processes write no more.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator

from benchmarks import report
from benchmarks import scene as machine
from benchmarks.kube import scene as scenes
from benchmarks.kube.audit import Request
from benchmarks.kube.scene import QUIET_SECONDS, Scene
from benchmarks.report import Bench, Figure
from benchmarks.scene import Use
from tests.support.stack import SCHEDULES, Process

COUNT = int(report.number("COUNT", 10_000, 1_000))
_IDLE_SECONDS = 20
_BARS = {"operator": "<= 400", "worker": "<= 250"}


async def run() -> AsyncIterator[Figure]:
    bench = Bench("kube-scale", f"{COUNT} Schedules")
    async with scenes.opened() as scene:
        before = await _rate_without_operator(scene)
        operator, worker = await scene.stack.running()
        report.say(f"{COUNT} Schedules while it runs")
        scene.audit.skip()
        started = time.monotonic()
        async with scene.metered(operator, worker) as uses:
            created = await scene.create("many-", COUNT)
            armed = await scene.until_armed(COUNT, operator) - started
            requests = await scene.until_settled(operator)
            settled = time.monotonic() - started - QUIET_SECONDS
        idle = [figure async for figure in idling(bench, operator, worker)]
        for process in (operator, worker):
            await process.drain()
        await scene.clear(SCHEDULES)
        rates = [before, await _rate_without_operator(scene)]
    yield bench.median("create rate of the API server, no operator", rates, "objects/s")
    yield bench.one("created while it runs", round(COUNT / created), "objects/s")
    share = COUNT / armed / statistics.fmean(rates) * 100
    yield bench.one("armed, of the API server's own rate", round(share), "%", ">= 70")
    yield bench.one("armed after the last was created", round(armed - created, 2), "s")
    yield bench.one("settled after the first was created", round(settled, 1), "s")
    behind = _first_status(requests)
    most = round(max(behind, default=float("inf")), 1)
    yield bench.one("status behind the creation, at most", most, "s", "<= 60", runs=len(behind))
    for figure in (*used(bench, uses), *idle):
        yield figure


async def _rate_without_operator(scene: Scene) -> float:
    report.say(f"{COUNT} Schedules without an operator")
    seconds = await scene.create("bare-", COUNT)
    await scene.clear(SCHEDULES)
    return COUNT / seconds


async def idling(bench: Bench, *processes: Process) -> AsyncIterator[Figure]:
    """Measure the CPU of idle processes."""
    before = {process: machine.cpu_seconds(process.pid) for process in processes}
    await asyncio.sleep(_IDLE_SECONDS)
    for process, used in before.items():
        busy = (machine.cpu_seconds(process.pid) - used) / _IDLE_SECONDS * 100
        yield bench.one(f"idle: CPU of {process.role}", round(busy, 2), "% of a core")


def used(bench: Bench, uses: dict[str, Use], when: str = "applying") -> Iterator[Figure]:
    """Yield the CPU time and memory that processes used."""
    for name, use in uses.items():
        role = name.partition("-")[0]
        yield bench.one(f"{when}: CPU of {role}", round(use.cpu_seconds, 1), "s")
        if bar := _BARS.get(role):
            most = round(use.most_megabytes)
            yield bench.one(f"{when}: most memory of {role}", most, "MB", bar)
            stall = round(use.worst_stall_ms)
            yield bench.one(f"{when}: longest stall of {role}", stall, "ms", "<= 300")


def _first_status(requests: list[Request]) -> list[float]:
    """Return the seconds from the creation of each Schedule to its first status."""
    created = {
        one.name: one.answered_us
        for one in requests
        if one.verb == "create" and one.resource == "schedules" and one.code == 201
    }
    first: dict[str, int] = {}
    for one in requests:
        if one.resource == "schedules/status" and one.code == 200 and one.name in created:
            first.setdefault(one.name, one.answered_us)
    return [(at - created[name]) / 1e6 for name, at in first.items()]
