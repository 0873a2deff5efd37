"""What the Lease says of an installation to people who may see nothing else of it."""

from __future__ import annotations

import asyncio
import functools
from types import SimpleNamespace

from duepoint import errors, services
from duepoint.controller.maintenance import installation as installations
from duepoint.kube import installation
from tests.fakes.fakeclock import FakeClock


class Counts:
    def __init__(self):
        self.is_down = False
        self.first_due_us = None
        self.counted = 0

    async def index_view(self):
        if self.is_down:
            raise errors.QueueUnavailable("redis.example:6379: no answer")
        return SimpleNamespace(
            server="Valkey 9.1.0",
            workers=(("w1", 0), ("w2", 0)),
            troubles=(("w1", "clock: 3600.0 s behind; queue: redis.example:6379 is away"),),
            memory_used=5,
            memory_limit=0,
        )

    async def totals(self):
        self.counted += 1
        return SimpleNamespace(due=3, lag_us=2_000_000, first_due_us=self.first_due_us)


async def _read():
    return None


def scene():
    clock, notes, counts = FakeClock(), {}, Counts()
    queue = SimpleNamespace(inspection=counts, layouts=SimpleNamespace(read=_read))
    health = services.Health()
    report = functools.partial(
        installations.report, queue=queue, clock=clock, health=health, annotate=notes.update
    )
    return clock, notes, counts, health, report


async def test_it_tells_counts_and_versions_and_no_address():
    clock, notes, _, health, report = scene()
    health.unwell("queue", "redis.example:6379 is away")
    running = asyncio.create_task(report())
    await clock.advance(1)
    text = notes[installation.ANNOTATION]
    state = installation.read(notes)
    running.cancel()
    assert "redis.example" not in text
    assert (state.workers, state.due, state.lag_seconds) == (2, 3, 2.0)
    assert state.redis == "Valkey 9.1.0"
    assert state.troubles == {"queue": ""}
    assert state.worker_troubles == {"w1": "clock: 3600.0 s behind; queue"}


async def test_since_when_redis_is_silent_stays_the_first_moment_until_it_answers():
    clock, notes, counts, _, report = scene()
    running = asyncio.create_task(report())
    await clock.advance(1)
    counts.is_down = True
    await clock.advance(60)
    first = installation.read(notes)
    await clock.advance(60)
    second = installation.read(notes)
    assert first.redis_down_since == second.redis_down_since != ""
    assert second.at > first.at
    assert second.workers == 2  # as was seen last
    counts.is_down = False
    await clock.advance(20)
    assert installation.read(notes).redis_down_since == ""
    running.cancel()
