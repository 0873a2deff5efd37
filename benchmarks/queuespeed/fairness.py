"""A quiet namespace beside a flood: how much later are its points than when nothing else is due?

The real worker fires sixty points of the namespace ``quiet``, one every 50 ms, first alone, then
while it empties a hundred thousand points of four other namespaces (one stream entry for each
batch); five times in turn. Everything is armed beforehand; the worker's clock begins at the hour at
which the flood is due. Lateness is the time at which the target is asked less the moment from which
the point may be claimed: the due by a worker's clock that is behind the server's by the tolerance,
as it is here.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator, Sequence

from benchmarks import report
from benchmarks.queuespeed import chain, filling, place
from benchmarks.report import Figure
from duepoint import clock as clocks
from duepoint import services
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue.claims import claiming
from duepoint.schedules import actions, definition
from duepoint.schedules import rule as rules
from duepoint.targets import target
from duepoint.worker import claimer, pipeline

NAME = "fairness"
QUIET = "quiet"
_POINTS = 60
_TURNS = 5
_APART_US = 50_000
_LEAD_US = 300_000
_BLOB = actions.encode(actions.Action(target=actions.StreamAction(name="quiet")))


class NotesQuiet(chain.OneEntryABatch):
    """One XADD for a batch; how late the quiet ones were asked for, in ms."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self.late_ms: list[float] = []
        self.all = asyncio.Event()
        self.others = 0

    def entries(self, firings: target.Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        self._note(firings.namespace, list(firings.slots_us))
        return super().entries(firings, members)

    def _note(self, namespace: str, dues_us: list[int]) -> None:
        if namespace != QUIET:
            self.others += len(dues_us)
            return
        now_us = self._clock.now_us() + claiming.CLOCK_TOLERANCE_US
        self.late_ms += [(now_us - due_us) / 1000 for due_us in dues_us]
        if len(self.late_ms) >= _POINTS:
            self.all.set()


async def run(kind: str, *, count: int = 100_000) -> list[Figure]:
    pairs = []
    for turn in range(_TURNS):
        report.say(f"{kind}: {_POINTS} points of a quiet namespace, turn {turn + 1}")
        alone = await _turn(kind, 0)
        beside = await _turn(kind, count)
        pairs.append((_p99(alone), _p99(beside)))
    return list(_figures(f"{kind}, {count:,} others", pairs))


async def _turn(kind: str, count: int) -> NotesQuiet:
    with place.server(kind) as server:
        async with place.queue(server, 1) as queue:
            hour_us = chain.HourClock().hour_us
            for number in range(_POINTS):
                due_us = hour_us + _LEAD_US + number * _APART_US
                await queue.writer.upsert([(_arming(queue, number, due_us), _BLOB)], place.EPOCH)
            with server.client() as client:
                await filling.schedules(queue, client, count=count, namespaces=4, due_us=hour_us)
            clock = chain.HourClock()
            queue.index.clock = clock
            noted = NotesQuiet(clock)
            work = _worker(queue, noted, clock)
            running = asyncio.create_task(work.run())
            await asyncio.wait_for(noted.all.wait(), 300)
            work.drain()
            await running
    return noted


def _worker(
    queue: delayqueue.DelayQueue, noted: NotesQuiet, clock: clocks.Clock
) -> claimer.Claimer:
    fires = pipeline.Pipeline(
        queue=queue,
        target=target.Targets(job=noted, webhook=noted, stream=noted),
        clock=clock,
        bounds=pipeline.Bounds(concurrency=256, lease_seconds=10.0),
    )
    limits = claimer.Limits(batch=500, under_way=512, lease_seconds=10.0, grace_seconds=5.0)
    return claimer.Claimer(queue, fires, clock, services.Health(), worker="bench", limits=limits)


def _arming(queue: delayqueue.DelayQueue, number: int, due_us: int) -> messages.Arming:
    timing = rules.Timing(schedules=("@every 1h",), start_us=due_us)
    known = definition.Definition(
        namespace=QUIET,
        name=f"single-{number}",
        uid=f"00000000-0000-4000-8000-{number:012x}",
        generation=1,
        timing_generation=1,
        created_us=due_us,
        not_before_us=due_us - 1,
        state=definition.State.ARMED,
        rule=rules.Rule(timing=timing),
        target=queue.signed_blobs.digest(QUIET, _BLOB),
    )
    return messages.Arming(definition=known, due_us=due_us)


def _p99(noted: NotesQuiet) -> float:
    return report.percentile(noted.late_ms, 0.99)


def _figures(case: str, pairs: Sequence[tuple[float, float]]) -> Iterator[Figure]:
    """The median of the turns' ratios; of each turn the p99 alone and the p99 beside the flood."""
    ratios = [beside / alone for alone, beside in pairs]
    alone_ms, beside_ms = (statistics.median(column) for column in zip(*pairs, strict=True))
    yield Figure(
        benchmark=NAME, figure=f"quiet namespace beside a flood, p99 of its p99 alone: {case}",
        value=round(statistics.median(ratios), 2), unit="", bar="<= 10", runs=len(pairs),
        spread=(round(min(ratios), 2), round(max(ratios), 2)),
        compared_with=f"p99 {beside_ms:.1f} ms beside it, {alone_ms:.1f} ms alone (medians)",
    )  # fmt: skip
