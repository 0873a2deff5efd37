"""Single points at random times, and nothing at all: how late, and at what cost.

The real worker sleeps until each of sixty Schedules is due, armed 0.3 to 0.7 s before; the server
runs at its default ``hz``. Lateness is the target's clock less the due. Afterwards MONITOR counts
for twenty seconds what a worker with nothing to do says.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import socket
import time
import uuid
from collections.abc import Iterator

from benchmarks import report
from benchmarks.queuespeed import place
from benchmarks.report import Figure
from duepoint import clock as clocks
from duepoint import services
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue.wire import scripting
from duepoint.runs import outcome
from duepoint.schedules import actions, definition
from duepoint.schedules import rule as rules
from duepoint.targets import target
from duepoint.worker import claimer, pipeline
from tests.fakes.recordingtarget import NoEntries
from tests.support.redisserver import RedisServer

NAME = "calm"
POINTS = 60
_IDLE_SECONDS = 20
#: What the last point left to do is done by then: each shard claimed from is looked at once more
#: when the lease of that claim would have ended.
_CALM_SECONDS = 12
_KEEPALIVES = {"PING", "HGET", "BEAT", "INFO"}
_BLOB = actions.encode(actions.Action(target=actions.StreamAction(name="calm")))


class NotesTime(NoEntries):
    """A target that does nothing but look at the clock."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.fired = asyncio.Event()

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        now_us = place.now_us()
        self.late_ms.append((now_us - firing.due_us) / 1000)
        self.fired.set()
        return outcome.Delivered(accepted_us=now_us)


async def run(kind: str) -> list[Figure]:
    with place.server(kind) as server:
        async with place.queue(server, 64) as queue:
            noted = NotesTime()
            work = a_worker(queue, noted)
            running = asyncio.create_task(work.run())
            report.say(f"{kind}: {POINTS} single points")
            for number in range(POINTS):
                await _one(queue, noted, number)
            report.say(f"{kind}: {_IDLE_SECONDS} s of nothing")
            await asyncio.sleep(_CALM_SECONDS)
            said = await asyncio.to_thread(_monitored, server, scripting.sha1("beat"))
            work.drain()
            await running
    return list(_figures(kind, noted.late_ms, said))


def a_worker(
    queue: delayqueue.DelayQueue, fires: target.Target, *, lease_seconds: float = 10.0
) -> claimer.Claimer:
    """The real worker around a target."""
    clock = clocks.SystemClock()
    bounds = pipeline.Bounds(concurrency=256, lease_seconds=lease_seconds)
    limits = claimer.Limits(
        batch=500, under_way=512, lease_seconds=lease_seconds, grace_seconds=1.0
    )
    fired = pipeline.Pipeline(queue=queue, target=fires, clock=clock, bounds=bounds)
    return claimer.Claimer(queue, fired, clock, services.Health(), worker="bench", limits=limits)


async def arm(queue: delayqueue.DelayQueue, number: int, due_us: int) -> None:
    """A Schedule whose first slot is at that very instant, and whose next is an hour later."""
    arming = hourly(queue, f"team-{number % 7}", f"calm-{number}", due_us, _BLOB)
    await queue.writer.upsert([arming], place.EPOCH)


def hourly(
    queue: delayqueue.DelayQueue, namespace: str, name: str, due_us: int, blob: bytes
) -> tuple[messages.Arming, bytes]:
    """What arms a Schedule that is due for the first time at this instant, and an hour later."""
    known = definition.Definition(
        namespace=namespace,
        name=name,
        uid=str(uuid.uuid4()),
        generation=1,
        timing_generation=1,
        created_us=due_us,
        not_before_us=due_us - 1,
        state=definition.State.ARMED,
        rule=rules.Rule(timing=rules.Timing(schedules=("@every 1h",), start_us=due_us)),
        target=queue.signed_blobs.digest(namespace, blob),
    )
    return messages.Arming(definition=known, due_us=due_us), blob


async def _one(queue: delayqueue.DelayQueue, noted: NotesTime, number: int) -> None:
    noted.fired.clear()
    ahead_us = random.randint(300_000, 700_000)
    await arm(queue, number, place.now_us() + ahead_us)
    await asyncio.wait_for(noted.fired.wait(), 30)


def _monitored(server: RedisServer, beat: str) -> collections.Counter[str]:
    """Commands by name, as clients sent them; the script ``beat`` is called BEAT."""
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


def _figures(kind: str, late: list[float], said: collections.Counter[str]) -> Iterator[Figure]:
    spread = (round(min(late), 3), round(max(late), 3))
    for share, bar in ((0.5, "<= 1.5"), (0.99, "<= 8")):
        yield Figure(
            benchmark=NAME, figure=f"lateness of single points p{share * 100:g}: {kind}",
            value=round(report.percentile(late, share), 3), unit="ms", bar=bar, spread=spread,
            runs=len(late),
        )  # fmt: skip
    early = sum(one < 0 for one in late)
    yield Figure(benchmark=NAME, figure=f"early: {kind}", value=early, unit="points", bar="= 0",
                 runs=len(late))  # fmt: skip
    others = sum(count for name, count in said.items() if name not in _KEEPALIVES)
    yield Figure(
        benchmark=NAME, figure=f"commands that are no keepalive in {_IDLE_SECONDS} s: {kind}",
        value=others, unit="commands", bar="= 0", compared_with=f"keepalives {dict(said)}",
    )  # fmt: skip
    per_connection = sum(said.values()) / _IDLE_SECONDS
    yield Figure(benchmark=NAME, figure=f"idle, keepalives included: {kind}",
                 value=per_connection, unit="commands/s")  # fmt: skip
