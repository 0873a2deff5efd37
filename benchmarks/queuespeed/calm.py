"""Single points at random times, and nothing at all: how late, and at what cost?

The product's worker sleeps until each of sixty Schedules is due, stored 0.3 to 0.7 s before.
Lateness is the target's clock less the due. Afterwards MONITOR counts for twenty seconds what a
worker with nothing to do sends.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator

from benchmarks import report
from benchmarks.queuespeed import chain, place
from benchmarks.report import Figure
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import rule as rules
from duepoint.targets import outcome, target
from tests.fakes.recordingtarget import NoEntries
from tests.support.redisserver import RedisServer

POINTS = int(report.number("POINTS", 60, 10))
_IDLE_SECONDS = 20
#: Longer than a lease: when the lease of its last claim would have ended, the worker looks at each
#: shard once more.
_CALM_SECONDS = 12
_KEEPALIVES = {"PING", "HGET", "BEAT", "INFO"}


class NotesTime(NoEntries):
    """A target that does nothing but note the time."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.fired = asyncio.Event()

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        raise NotImplementedError(f"{firing.name} refers to nothing")

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        now_us = place.now_us()
        self.late_ms.append((now_us - firing.due_us) / 1000)
        self.fired.set()
        return outcome.Delivered(accepted_us=now_us)


async def run(kind: str) -> AsyncIterator[Figure]:
    bench, noted = report.Bench("calm", kind), NotesTime()
    with place.server(kind) as server:
        async with place.queue(server.url, 64) as queue:
            work = chain.a_worker(queue, noted, grace_seconds=1.0)
            running = asyncio.create_task(work.run())
            report.say(f"{kind}: {POINTS} single points")
            for number in range(POINTS):
                await _one(queue, noted, number)
            yield bench.share("lateness of single points", 0.5, noted.late_ms, "<= 1.5")
            yield bench.share("lateness of single points", 0.99, noted.late_ms, "<= 8")
            early = sum(one < 0 for one in noted.late_ms)
            yield bench.one("early points", early, "points", "= 0", runs=POINTS)
            report.say(f"{kind}: idle for {_IDLE_SECONDS} s")
            await asyncio.sleep(_CALM_SECONDS)
            said = await asyncio.to_thread(_monitored, server, scripting.sha1("beat"))
            work.drain()
            await running
    others = sum(count for name, count in said.items() if name not in _KEEPALIVES)
    idle = f"commands besides keepalives in {_IDLE_SECONDS} s"
    yield bench.one(idle, others, "commands", "= 0", beside=f"keepalives {dict(said)}")


async def _one(queue: delayqueue.DelayQueue, noted: NotesTime, number: int) -> None:
    """Store a Schedule that is due in a moment, and again an hour later; wait for its firing."""
    noted.fired.clear()
    due_us = place.now_us() + random.randint(300_000, 700_000)
    hourly = rules.Rule(timing=rules.Timing(schedules=("@every 1h",), start_us=due_us))
    name = f"calm-{number}"
    one = place.arming(queue, f"team-{number % 7}", name, due_us, rule=hourly, created_us=due_us)
    await queue.writer.upsert([one], place.EPOCH)
    await asyncio.wait_for(noted.fired.wait(), 30)


def _monitored(server: RedisServer, beat: str) -> collections.Counter[str]:
    """Count commands by name, as clients sent them; the script ``beat`` is called BEAT."""
    text = b""
    end = time.monotonic() + _IDLE_SECONDS
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"MONITOR\r\n")
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            with contextlib.suppress(TimeoutError):
                text += connection.recv(65536)
    lines = [line for line in text.decode(errors="replace").splitlines() if " lua]" not in line]
    words = [line.split('"') for line in lines if '"' in line]
    return collections.Counter("BEAT" if beat in said else said[1].upper() for said in words)
