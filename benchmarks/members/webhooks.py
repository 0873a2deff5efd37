"""What a webhook costs the worker: of a member that fires once, beside a Schedule's.

The real worker with the real target sends a thousand a second to a receiver that answers at once,
in a process of its own. First those of Schedules (``@every 1h``, due for the first time), then
those of one-offs of a set with a payload of their own. CPU is that of the worker's process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from benchmarks import report
from benchmarks.members import place
from benchmarks.queuespeed import calm
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from benchmarks.webhooks import server as receiver
from duepoint import clock as clocks
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.members import values
from duepoint.net import dialling
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules import rule as rules
from duepoint.targets import target
from duepoint.targets.webhook import admission, circuitbreaker
from duepoint.targets.webhook import target as webhooktarget
from tests.fakes import recordingtarget
from tests.support import vaults, webhookscene, webhooktargets

NAME = "members-webhook"
_RATE = 1_000
_AHEAD_US = 3_000_000
_ONCE = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))
_PAYLOAD = b'{"customer":17,"basket":["a","b"]}'

Fill = Callable[[delayqueue.DelayQueue, bytes, list[int]], Awaitable[None]]


async def run(kind: str, *, small: bool) -> list[Figure]:
    count = 2_000 if small else 20_000
    figures = []
    async with receiver.serving() as port:
        url = f"http://127.0.0.1:{port}/hooks"
        for who, fill in (("Schedules", _schedules), ("one-offs of a set", _members)):
            report.say(f"{kind}: {count:,} webhooks of {who}")
            cpu_us, p99_ms = await _fired(kind, url, fill, count)
            figures.append(
                Figure(
                    benchmark=NAME, figure=f"CPU of a webhook: {kind}, {who}", unit="us",
                    value=round(cpu_us, 1), runs=count,
                    compared_with=f"lateness p99 {p99_ms:.1f} ms at {_RATE:,} a second",
                )
            )  # fmt: skip
    return figures


async def _fired(kind: str, url: str, fill: Fill, count: int) -> tuple[float, float]:
    """CPU of the worker for each, in us, and the p99 of their lateness in ms."""
    clock = clocks.SystemClock()
    blob = actions.encode(actions.Action(target=actions.WebhookAction(url=url)))
    with points_place.server(kind) as server:
        async with place.queue(server.url, 1) as queue:
            limits = admission.HostLimits(clock, per_host=32, places=256)
            breaker = circuitbreaker.CircuitBreaker(queue.circuits, clock)
            api = await vaults.api_with()
            sender = _NotesTimes(
                webhooktarget.WebhookTarget(
                    dialling.Dialler(webhookscene.LOCAL),
                    webhooktargets.FixedServices(),
                    vaults.a_vault(api, clock),
                    clock,
                    admission=admission.Admission(limits, breaker),
                ),
                count,
            )
            begin_us = points_place.now_us() + _AHEAD_US + count * 100
            await fill(queue, blob, [begin_us + n * 1_000_000 // _RATE for n in range(count)])
            work = calm.a_worker(queue, target.Targets(job=sender, webhook=sender, stream=sender))
            running = asyncio.create_task(work.run())
            await asyncio.sleep((begin_us - points_place.now_us()) / 1_000_000 - 0.1)
            cpu = time.process_time()
            await asyncio.wait_for(sender.done.wait(), 60 + count / _RATE)
            await asyncio.sleep(0.1)
            cpu_us = (time.process_time() - cpu) / count * 1e6
            work.drain()
            await running
            await sender.target.close()
    return cpu_us, report.percentile(sender.late_ms, 0.99)


class _NotesTimes(recordingtarget.NoEntries):
    """The target, with a note of when each answer was there."""

    def __init__(self, sender: webhooktarget.WebhookTarget, count: int) -> None:
        self.target = sender
        self.late_ms: list[float] = []
        self.done = asyncio.Event()
        self._count = count

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        answer = await self.target.fire(firing)
        self.late_ms.append((points_place.now_us() - firing.due_us) / 1000)
        if len(self.late_ms) == self._count:
            self.done.set()
        return answer

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        return await self.target.check(firing)


async def _schedules(queue: delayqueue.DelayQueue, blob: bytes, dues_us: list[int]) -> None:
    armings = [
        calm.hourly(queue, "shop", f"reminder-{number}", due_us, blob)
        for number, due_us in enumerate(dues_us)
    ]
    await queue.writer.upsert(armings, points_place.EPOCH)


async def _members(queue: delayqueue.DelayQueue, blob: bytes, dues_us: list[int]) -> None:
    record = await place.store(queue, len(dues_us), blob)
    rows = [
        values.MemberWrite(id=f"reminder-{number}", rule=_ONCE, at_us=due_us, payload=_PAYLOAD)
        for number, due_us in enumerate(dues_us)
    ]
    await queue.members.put(record, rows)
