"""A full set is deleted beside firings: how long it takes, and how late it makes them.

The real worker fires 5,000 Schedules a second (as in ``scale.creating``) for some time alone, and
then while the operator's own service removes the members. That service runs in a process of its
own, as in an installation: ``python -m benchmarks.members.deletion URL COUNT``.
"""

from __future__ import annotations

import array
import asyncio
import json
import sys
import time
from collections.abc import Sequence

import msgspec
import uvloop

from benchmarks import report
from benchmarks.members import place
from benchmarks.queuespeed import calm
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from benchmarks.scale import creating
from duepoint import clock as clocks
from duepoint.controller.schedulesets import setdeletions
from duepoint.controller.schedulesets.setstatus import DeletionProgress
from duepoint.delayqueue import delayqueue
from duepoint.schedules.sets.setrecord import SetRecord, SetState
from duepoint.targets import target
from tests.support.redisserver import RedisServer
from tests.support.terms import a_term

NAME = "members-deletion"
#: Ten million in ten minutes.
_RATE = 10_000_000 / 600
_BAR_MS = "<= 50"


async def run(
    queue: delayqueue.DelayQueue, server: RedisServer, count: int, *, small: bool
) -> list[Figure]:
    """Delete the set, which is full."""
    rate, alone_seconds = (1_000, 5) if small else (5_000, 30)
    noted = creating.NotesTimes()
    noted.from_us = await creating.arm(queue, rate)
    work = calm.a_worker(queue, target.Targets(job=noted, webhook=noted, stream=noted))
    running = asyncio.create_task(work.run())
    ahead_us = noted.from_us - points_place.now_us()
    report.say(f"{server.kind}: {rate:,} firings/s alone for {alone_seconds} s")
    await asyncio.sleep(ahead_us / 1_000_000 + alone_seconds)
    alone, noted.late_ms = noted.late_ms, array.array("f")
    report.say(f"{server.kind}: a set of {count:,} members is deleted")
    began = time.perf_counter()
    removed = await _deleted(server, count)
    beside, beside_seconds = noted.late_ms, time.perf_counter() - began
    work.drain()
    await running
    with server.client() as client:
        left = sum(1 for _ in client.scan_iter(match="*:defs:*", count=10_000))
    report.say(f"{left:,} buckets are left, of Schedules")
    case = f"{server.kind}, {count:,} members beside {rate:,} firings/s"
    return [
        Figure(
            benchmark=NAME, figure=f"a set deleted: {case}", unit="s",
            value=round(removed["seconds"], 1), bar=f"<= {round(count / _RATE, 1)}",
            compared_with=f"{count / removed['seconds']:,.0f} members/s in {removed['steps']:,}"
            f" steps; CPU of the operator {removed['cpu'] / count * 1e6:.1f} us a member; the bar"
            " is that of ten million in ten minutes",
        ),
        _lateness(f"while it is deleted: {case}", beside, beside_seconds, _BAR_MS),
        _lateness(f"before: {case}", alone, alone_seconds, ""),
    ]  # fmt: skip


def _lateness(case: str, late_ms: Sequence[float], seconds: float, bar: str) -> Figure:
    return Figure(
        benchmark=NAME, figure=f"lateness p99 {case}", unit="ms", bar=bar, runs=len(late_ms),
        value=round(report.percentile(late_ms, 0.99), 2),
        spread=(round(min(late_ms), 2), round(max(late_ms), 2)),
        compared_with=f"p50 {report.percentile(late_ms, 0.5):.2f} ms;"
        f" {len(late_ms) / seconds:,.0f} firings/s",
    )  # fmt: skip


async def _deleted(server: RedisServer, count: int) -> dict[str, float]:
    command = ["-m", "benchmarks.members.deletion", server.url, str(count)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("the deletion failed")
    found: dict[str, float] = json.loads(said)
    return found


async def _delete(url: str, count: int) -> None:
    """Remove the set by the operator's service; prints what it took."""
    async with place.queue(url, count) as queue:
        record = msgspec.structs.replace(place.the_set(queue, count), state=SetState.DELETING)
        ended = asyncio.Event()
        steps: list[DeletionProgress] = []

        async def finished(_record: SetRecord) -> None:
            ended.set()

        service = setdeletions.SetDeletions(
            a_term(clocks.SystemClock(), queue=queue, epoch=points_place.EPOCH),
            report=lambda _uid, progress: steps.append(progress),
            finished=finished,
        )
        began, cpu = time.perf_counter(), time.process_time()
        running = asyncio.create_task(service.run())
        service.begin(record, began_us=points_place.now_us())
        await ended.wait()
        seconds = time.perf_counter() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        removed = steps[-1].removed
        if removed != count:
            raise SystemExit(f"{removed:,} of {count:,} members were removed")
    spent = {"seconds": seconds, "cpu": time.process_time() - cpu, "steps": len(steps)}
    print(json.dumps(spent), flush=True)


if __name__ == "__main__":
    uvloop.run(_delete(sys.argv[1], int(sys.argv[2])))
