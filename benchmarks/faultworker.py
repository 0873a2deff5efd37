"""The worker of ``faultpoints``: fires points that are due, over a server, and reports its CPU."""

from __future__ import annotations

import asyncio
import pathlib
import tempfile
import time

from duepoint import clock as clocks
from duepoint import services
from duepoint.delayqueue import messages
from duepoint.schedules import actions, definition
from duepoint.targets import target
from duepoint.targets.stream import target as streamtarget
from duepoint.worker import claimer, pipeline
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import queueing
from tests.support.builders import a_definition
from tests.support.redisserver import RedisServer

ACTIONS: dict[str, actions.Action] = {
    "webhook": actions.Action(target=actions.WebhookAction(url="https://hooks.example.com/x")),
    "stream": actions.Action(target=actions.StreamAction(name="ticks")),
}
_HOUR_US = 3_600_000_000
_LEASE_SECONDS = 30.0


async def measure(count: int) -> dict[str, float]:
    """Microseconds of CPU time a firing, by kind of target; each kind is warmed up first."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="faultpoints-") as folder:
        server = RedisServer("valkey", pathlib.Path(folder))
        server.start()
        try:
            for kind, action in ACTIONS.items():
                await _fire(server.url, f"warm-{kind}:", action, min(count, 500))
                found[kind] = await _fire(server.url, f"{kind}:", action, count)
        finally:
            server.stop()
    return found


async def _fire(url: str, prefix: str, action: actions.Action, count: int) -> float:
    harness = await queueing.redis_harness(url, prefix, users=False)
    queue, clock = harness.queue, clocks.SystemClock()
    await _arm(queue, action, count, clock.now_us())
    alone = RecordingTarget(clock)
    streams = streamtarget.StreamTarget(clock)
    work = pipeline.Pipeline(
        queue=queue,
        target=target.Targets(job=alone, webhook=alone, stream=streams),
        clock=clock,
        bounds=pipeline.Bounds(concurrency=200, lease_seconds=_LEASE_SECONDS),
    )
    limits = claimer.Limits(
        batch=500, under_way=1_000, lease_seconds=_LEASE_SECONDS, grace_seconds=5.0
    )
    worker = claimer.Claimer(queue, work, clock, services.Health(), worker="w", limits=limits)
    began = time.process_time()
    running = asyncio.create_task(worker.run())
    while True:
        if (await harness.total()).due == 0:
            break
        await asyncio.sleep(0.1)
    worker.drain()
    await running
    spent = time.process_time() - began
    await harness.close()
    return spent / count * 1e6


async def _arm(queue, action: actions.Action, count: int, now_us: int) -> None:  # type: ignore[no-untyped-def]
    blob = actions.encode(action)
    digest = queue.signed_blobs.digest("default", blob)
    armings = []
    for number in range(count):
        known: definition.Definition = a_definition(
            "@hourly", created_us=now_us - _HOUR_US, not_before_us=now_us - _HOUR_US,
            name=f"s-{number}", uid=f"6f1c9a34-0000-4000-8000-{number:012}", target=digest,
        )  # fmt: skip
        due_us = now_us // _HOUR_US * _HOUR_US
        armings.append((messages.Arming(definition=known, due_us=due_us), blob))
    for first in range(0, count, 500):
        await queue.writer.upsert(armings[first : first + 500], queueing.EPOCH)
