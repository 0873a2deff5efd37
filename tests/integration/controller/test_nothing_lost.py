"""A slot that is being put off while Redis is emptied: the rebuild finds it again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from duepoint import services
from duepoint.clock import SystemClock
from duepoint.controller.leadership import Timings
from duepoint.kube import times
from duepoint.runs import outcome as outcomes
from duepoint.schedules.conditions import Reason
from duepoint.worker.claimer import Claimer, Limits
from duepoint.worker.firing import Bounds, Firer
from tests.fakes.recordingtarget import RecordingTarget
from tests.integration.controller.conftest import Installation
from tests.support.builders import JOB_TEMPLATE

REFUSED = outcomes.Retry(reason=Reason.QUOTA_EXCEEDED, message="exceeded quota", started=False)


@contextlib.asynccontextmanager
async def a_worker(installation: Installation, target: RecordingTarget) -> AsyncIterator[None]:
    queue = installation.a_queue()
    await queue.start()
    clock = SystemClock()
    bounds = Bounds(concurrency=16, lease_seconds=3.0)
    claimer = Claimer(
        queue,
        Firer(queue=queue, target=target, clock=clock, bounds=bounds),
        clock,
        services.Health(),
        worker="worker-a",
        limits=Limits(batch=100, under_way=200, lease_seconds=3.0, grace_seconds=1.0),
    )
    task = asyncio.create_task(claimer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await queue.close()


async def test_a_slot_that_was_being_put_off_when_redis_was_emptied_runs_in_the_end(
    installation: Installation,
):
    installation.timings = Timings(look_seconds=0.5)
    target = RecordingTarget(SystemClock())
    released = False
    ran: list[int] = []

    def answer(firing) -> outcomes.Outcome:
        first = min(one.slot_us for one in target.fired)
        if firing.slot_us == first and not released:
            return REFUSED
        ran.append(firing.slot_us)
        return outcomes.Delivered(accepted_us=time.time_ns() // 1000, running=True, job_name="j")

    target.always_reply(answer)
    async with installation.leading():
        await installation.create(
            schedule="@every 1s", jobTemplate=JOB_TEMPLATE, catchUpPolicy="All"
        )
        async with a_worker(installation, target):
            await installation.until(lambda status: status.get("runs", {}).get("started", 0) >= 3)
        first = min(one.slot_us for one in target.fired)
        assert first not in ran
        status = (await installation.object())["status"]
        assert times.parse_us(status["settledThrough"]) > first
        assert times.parse_us(status["openSlots"]["oldest"]) == first
        installation.empty_redis()
        released = True
        async with a_worker(installation, target):
            await installation.until_held("nightly")
            await installation.until(
                lambda status: (
                    "openSlots" not in status and status["runs"]["started"] > len(ran) - 3
                )
            )
    newest = max(ran)
    assert set(range(first, newest + 1, 1_000_000)) <= set(ran)
