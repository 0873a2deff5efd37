"""FLUSHALL, then everything again from the objects: how long until the last one is armed.

The objects stand in memory as an API server's list would be decoded, in pages of 500; what runs is
the leader's own road: comparison, reconcile_queue, plan, report, queue. Each object says that its
present generation was accepted and up to where it is settled, so that no status is written.

Twice: by a leader that takes over beside an empty server, and so reads and keeps each status for
the first time, and by the same leader when the server has been emptied under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from benchmarks import report
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from benchmarks.scale import place, source
from duepoint import clock as clocks
from duepoint.controller.schedules import dryruns, observations, reconcile, reconcilequeue, resync
from duepoint.controller.status import reporter, states
from duepoint.delayqueue import delayqueue
from duepoint.kube import port, schedules, times
from duepoint.schedules import rule as rules
from tests.support.terms import a_term

NAME = "scale-rebuild"
_PAGE = 500
#: A million in 60 seconds.
_RATE = 1_000_000 / 60


class ListInMemory:
    """An API server that can do nothing but list."""

    def __init__(self, count: int) -> None:
        self._pages = [
            tuple(_schedule(number) for number in range(first, min(count, first + _PAGE)))
            for first in range(0, count, _PAGE)
        ]

    async def list_pages(self, *_: object, **__: object) -> AsyncIterator[port.ListPage[Any]]:
        for items in self._pages:
            yield port.ListPage(metadata=port.ListMetadata(resource_version="1"), items=items)


async def run(kind: str, count: int) -> list[Figure]:
    report.say(f"{kind}: {count:,} objects in memory, an empty server")
    with points_place.server(kind, "--hash-max-listpack-entries", "512") as server:
        async with place.queue(server.url, count) as queue:
            leader = _Leader(queue, ListInMemory(count))
            async with leader.leading():
                first = await leader.compare(count)
                with server.client() as client:
                    client.flushall()
                await queue.membership.open(place.shards(count), points_place.EPOCH)
                again = await leader.compare(count)
    return [
        _figure(f"rebuild by a leader that takes over: {kind}, {count:,} objects", *first, count),
        _figure(f"rebuild after FLUSHALL: {kind}, {count:,} objects", *again, count),
    ]


def _figure(case: str, seconds: float, cpu: float, count: int) -> Figure:
    return Figure(
        benchmark=NAME, figure=case, unit="s", value=round(seconds, 2),
        bar=f"<= {round(count / _RATE, 2)}",
        compared_with=f"{count / seconds:,.0f} objects/s, {cpu / count * 1e6:.0f} us of CPU"
        " each; the bar is that of a million in 60 s",
    )  # fmt: skip


class _Leader:
    """The leader's services, as far as a comparison needs them."""

    def __init__(self, queue: delayqueue.DelayQueue, objects: ListInMemory) -> None:
        api = cast("port.Api", objects)
        term = a_term(clocks.SystemClock(), api=api, queue=queue, epoch=points_place.EPOCH)
        performs = reconcile.Reconcile(term, dry_runs=dryruns.DryRuns(api))
        reports = reporter.Reporter(term, states=states.ScheduleStates(performs.stored))
        seen = observations.Observations(term, reconcile=performs, reporter=reports)
        self._queue = queue
        self._brings = reconcilequeue.ReconcileQueue(
            term, observations=seen, reconcile=performs, reporter=reports
        )
        self._compares = resync.Comparison(
            term,
            observations=seen,
            note_collision=performs.collisions.__setitem__,
            listed=asyncio.Event(),
        )

    @contextlib.asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        working = asyncio.create_task(self._brings.run())
        await asyncio.sleep(0.1)  # all workers stand ready
        try:
            yield
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def compare(self, count: int) -> tuple[float, float]:
        """Until all are armed: seconds, and CPU seconds of this process."""
        began, cpu = time.perf_counter(), time.process_time()
        await self._compares.run()
        while self._brings.unapplied():  # noqa: ASYNC110 - the last one is not signalled
            await asyncio.sleep(0.02)
        spent = time.perf_counter() - began, time.process_time() - cpu
        total = (await self._queue.counts.totals()).points
        assert total == count, f"{total:,} of {count:,} points are there"
        return spent


def _schedule(number: int) -> schedules.Schedule:
    known = source.one(number, "")
    timing = known.rule.timing
    spec = {
        "schedule": timing.schedules[0],
        "timeZone": timing.time_zone,
        "webhook": {"url": f"https://hooks.{known.namespace}.example.com/schedules"},
    }
    ready = {
        "type": "Ready", "status": "True", "reason": "Armed", "observedGeneration": 1,
        "message": "the next slot is in the queue", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    status = {
        "observedGeneration": 1,
        "conditions": [ready],
        "settledThrough": times.micro_time_text(points_place.now_us() - 60_000_000),
        "timingHash": rules.timing_hash(known.rule),
    }
    return schedules.Schedule(
        metadata=port.Metadata(
            name=known.name,
            namespace=known.namespace,
            uid=known.uid,
            generation=1,
            resource_version="1",
            creation_timestamp=times.time_text(known.created_us),
        ),
        spec=msgspec.Raw(msgspec.json.encode(spec)),
        status=msgspec.Raw(msgspec.json.encode(status)),
    )
