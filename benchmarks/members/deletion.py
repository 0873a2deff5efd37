"""A full set is deleted beside firings: how long does it take, and how late does it make them?

The worker fires 5,000 Schedules a second for some time alone, then while the operator's own steps
remove the members, in a process of their own: ``python -m benchmarks.members.deletion URL COUNT``.
"""

from __future__ import annotations

import array
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

import msgspec
import uvloop

from benchmarks import report
from benchmarks.members import firings, place
from benchmarks.queuespeed import place as queueplace
from benchmarks.report import Figure
from benchmarks.scene import Child
from duepoint.controller.schedulesets import schedulesets
from duepoint.delayqueue import delayqueue
from duepoint.schedules.sets.setrecord import SetState
from tests.support.redisserver import RedisServer

RATE = int(report.number("RATE", 5_000, 1_000))
ALONE_SECONDS = report.number("ALONE_SECONDS", 30, 5)
#: Ten million in ten minutes.
_MEMBERS_A_SECOND = 10_000_000 / 600


async def run(
    queue: delayqueue.DelayQueue, server: RedisServer, count: int
) -> AsyncIterator[Figure]:
    async with firings.going_on(queue, RATE) as noted:
        report.say(f"{server.kind}: {RATE:,} firings/s alone for {ALONE_SECONDS:g} s")
        await asyncio.sleep(ALONE_SECONDS)
        alone, noted.late_ms = noted.late_ms, array.array("f")
        report.say(f"{server.kind}: a set of {count:,} members is deleted")
        child = await Child.start("benchmarks.members.deletion", server.url, count)
        removed = json.loads(await child.finish())
        beside = noted.late_ms
    bench = report.Bench("members", f"{server.kind}, {count:,} members, {RATE:,} firings/s")
    yield bench.one(
        "a set deleted", round(removed["seconds"], 1), "s",
        f"<= {round(count / _MEMBERS_A_SECOND, 1)}",
        beside=f"{count / removed['seconds']:,.0f} members/s in {removed['steps']:,} steps;"
        f" {removed['cpu'] / count * 1e6:.1f} us of CPU a member",
    )  # fmt: skip
    yield bench.share("lateness while it is deleted", 0.99, beside, "<= 50")
    yield bench.share("lateness before", 0.99, alone)


async def _delete(url: str, count: int) -> None:
    """Remove the set in the operator's steps, with its pauses; print the time it took."""
    print("ready", flush=True)
    async with place.queue(url, count) as queue:
        record = msgspec.structs.replace(place.the_set(queue, count), state=SetState.DELETING)
        await queue.sets.store(record, b"", queueplace.EPOCH)
        began, cpu = time.perf_counter(), time.process_time()
        removed = steps = 0
        while True:
            done = await queue.set_removals.step(
                record, queueplace.EPOCH, most=schedulesets.STEP_MEMBERS
            )
            removed, steps = removed + done.removed, steps + 1
            if done.is_done:
                break
            await asyncio.sleep(schedulesets.REST_SECONDS)
        seconds = time.perf_counter() - began
        if removed != count:
            raise SystemExit(f"{removed:,} of {count:,} members were removed")
    spent = {"seconds": seconds, "cpu": time.process_time() - cpu, "steps": steps}
    print(json.dumps(spent), flush=True)


if __name__ == "__main__":
    uvloop.run(_delete(sys.argv[1], int(sys.argv[2])))
