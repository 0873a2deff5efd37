"""What the queue holds is told to whoever scrapes, and asked of Redis only then."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from prometheus_client import REGISTRY

from duepoint import probes
from duepoint.controller.maintenance.indexwatch import LEAST_SECONDS, QueueGauges
from tests.fakes import fakeclock
from tests.support import queueing, virtualqueue
from tests.support.terms import a_term

CONTENTS = ("queue_points", "queue_due_points", "dead_entries")


def gauges():
    return [REGISTRY.get_sample_value(f"duepoint_{name}") for name in CONTENTS]


async def scrape() -> str:
    return (await probes.Page(REGISTRY).text()).decode()


@pytest.fixture
async def term():
    clock = fakeclock.FakeClock()
    queue = virtualqueue.VirtualQueue(clock, blob_key=queueing.BLOB_KEY)
    await queue.membership.open(4, queueing.EPOCH)
    harness = queueing.Harness(queue, clock.now_us, clock.advance, clock=clock)
    asked = []
    totals = harness.queue.counts.totals

    async def counted():
        asked.append(harness.now_us())
        return await totals()

    harness.queue.counts.totals = counted
    service = QueueGauges(a_term(harness.clock, queue=harness.queue))
    task = asyncio.create_task(service.run())
    await asyncio.sleep(0)
    yield harness, asked, task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_however_many_scrape_the_queue_is_asked_once_in_ten_seconds(term):
    harness, asked, _ = term
    for _ in range(5):
        await scrape()
        await harness.pass_time(1)
    assert len(asked) == 1
    await harness.pass_time(LEAST_SECONDS)
    await scrape()
    assert len(asked) == 2
