"""How the one-offs of a load get into the set: all at once, or one after the other.

``ahead`` sends them in bulk before they are due, the earliest first. ``as-due`` is a submitter of
jobs: one request each, spread over the time, each due a moment after its request.
"""

from __future__ import annotations

import asyncio
import collections
import time
from dataclasses import dataclass, field

from duepoint import client
from duepoint.cli import progress
from duepoint.cli.load.plan import LoadPlan

#: Requests under way at once, of ``as-due``.
_AT_ONCE = 32


@dataclass(slots=True)
class Submitted:
    """What the API answered so far.

    Attributes:
        accepted: numbers of the one-offs that it took.
        late: of these, the ones that it answered after their due time.
    """

    accepted: set[int] = field(default_factory=set)
    late: int = 0
    refused: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0

    def take(self, number: int, due_us: int, now_us: int) -> None:
        self.accepted.add(number)
        self.late += now_us > due_us


async def ahead(
    asked: client.AsyncSetClient, plan: LoadPlan, submitted: Submitted, advance: progress.Advance
) -> None:
    """Send all of them in bulk; raises client.ClientError."""
    began = time.monotonic()
    rows = (plan.row(number) for number in range(len(plan.due_us)))
    number = 0
    async for answer in asked.upsert(rows):
        if answer.error is not None:
            submitted.refused[answer.error.code] += 1
        else:
            submitted.take(number, plan.due_us[number], _now_us())
        number += 1
        if number % 500 == 0:
            advance(0, f"{number:,} submitted")
    submitted.seconds = time.monotonic() - began


async def as_due(
    asked: client.AsyncSetClient,
    plan: LoadPlan,
    submitted: Submitted,
    advance: progress.Advance,
    *,
    delay_us: int,
) -> None:
    """Send each so long before it is due."""
    began = time.monotonic()
    places = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for number in range(len(plan.due_us)):
            wait_seconds = (plan.due_us[number] - delay_us - _now_us()) / 1e6
            if wait_seconds > 0:
                await asyncio.sleep(wait_seconds)
            await places.acquire()
            task = group.create_task(_put(asked, plan, number, submitted))
            task.add_done_callback(lambda _: places.release())
            advance(len(submitted.accepted), f"{number + 1:,} submitted")
    submitted.seconds = time.monotonic() - began


async def _put(
    asked: client.AsyncSetClient, plan: LoadPlan, number: int, submitted: Submitted
) -> None:
    row = plan.row(number)
    try:
        deadline = row.starting_deadline_seconds
        spec = client.MemberSpec(at=row.at, payload=row.payload, starting_deadline_seconds=deadline)
        await asked.put(row.id, spec)
    except client.ClientError as error:
        submitted.refused[getattr(error, "code", "NoAnswer")] += 1
    else:
        submitted.take(number, plan.due_us[number], _now_us())


def _now_us() -> int:
    return time.time_ns() // 1_000
