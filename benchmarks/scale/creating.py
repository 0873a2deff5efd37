"""Creating besides firing: does a full index, or a creation, delay firings?

Schedules of ``@every 20.1s`` in one namespace are added to the full index, made at 201 different
seconds, so that some of them are due every tenth of a second. The real worker fires them (one
stream entry for each batch) while another process creates Schedules by the usual road, five
thousand a minute. Lateness is the time at which the target is asked less the due; what is due in
the first period does not count; creating goes on from before it until the end.

``python -m benchmarks.scale.creating URL COUNT SECONDS`` is the process that creates.
"""

from __future__ import annotations

import array
import asyncio
import sys
import time
import uuid
from collections.abc import Sequence

import uvloop

from benchmarks import report
from benchmarks.queuespeed import calm, chain
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from benchmarks.scale import place, source
from duepoint.delayqueue import delayqueue, messages
from duepoint.schedules import actions, definition
from duepoint.schedules import rule as rules
from duepoint.targets import target
from tests.support.redisserver import RedisServer

NAME = "scale-creating"
_PERIOD_SECONDS = 20.1
_PERIOD_US = 20_100_000
_STEPS = 201  # of the period, 100 ms each
_NAMESPACES = 1
_CREATES_A_MINUTE = 5_000
_LEAD_SECONDS = 5
_PART = 5_000
_BLOB = actions.encode(actions.Action(target=actions.StreamAction(name="scale")))


class NotesTimes(chain.OneEntryABatch):
    """One XADD for a batch; how late each row was asked for, in ms."""

    def __init__(self) -> None:
        self.from_us = 0
        self.late_ms = array.array("f")

    def entries(self, firings: target.Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        self._note(firings.slots_us)
        return super().entries(firings, members)

    def _note(self, dues_us: Sequence[int]) -> None:
        now_us = points_place.now_us()
        self.late_ms.extend((now_us - due) / 1000 for due in dues_us if due >= self.from_us)


async def run(
    queue: delayqueue.DelayQueue, server: RedisServer, case: str, count: int, *, small: bool
) -> list[Figure]:
    rate, seconds = (1_000, 20) if small else (10_000, 300)
    report.say(f"{server.kind}: {rate:,} firings/s and {_CREATES_A_MINUTE:,} creates a minute")
    noted = NotesTimes()
    began_us = await arm(queue, rate)
    noted.from_us = began_us + _PERIOD_US
    work = calm.a_worker(queue, target.Targets(job=noted, webhook=noted, stream=noted))
    running = asyncio.create_task(work.run())
    before_seconds = (noted.from_us - points_place.now_us()) / 1_000_000
    creating_seconds = seconds + before_seconds
    creator = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.scale.creating",
        server.url, str(count), str(creating_seconds), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    created = int((await creator.communicate())[0])
    lasted = (points_place.now_us() - noted.from_us) / 1_000_000
    work.drain()
    await running
    late = noted.late_ms
    minutes = creating_seconds / 60
    return [
        Figure(
            benchmark=NAME, figure=f"lateness p99 at {rate:,} firings/s: {case}", unit="ms",
            value=round(report.percentile(late, 0.99), 2), bar="<= 50", runs=len(late),
            spread=(round(min(late), 2), round(max(late), 2)),
            compared_with=f"{len(late) / lasted:,.0f} firings/s noted in {lasted:.0f} s; p50"
            f" {report.percentile(late, 0.5):.2f} ms",
        ),
        Figure(
            benchmark=NAME, figure=f"created meanwhile: {case}", unit="a minute",
            value=round(created / minutes), bar=f">= {_CREATES_A_MINUTE * 0.99}",
        ),
    ]  # fmt: skip


async def arm(queue: delayqueue.DelayQueue, rate: int) -> int:
    """So many firings a second from a little later on; when that is."""
    begin_us = points_place.now_us() // 1_000_000 * 1_000_000 + _LEAD_SECONDS * 1_000_000
    begin_us += rate // 500 * 1_000_000  # arming them takes a while
    rule = rules.Rule(timing=rules.Timing(schedules=(f"@every {_PERIOD_SECONDS}s",)))
    wanted = [
        _arming(queue, number, rule, begin_us) for number in range(int(rate * _PERIOD_SECONDS))
    ]
    for first in range(0, len(wanted), _PART):
        await queue.writer.upsert(wanted[first : first + _PART], points_place.EPOCH)
    return begin_us


def _arming(
    queue: delayqueue.DelayQueue, number: int, rule: rules.Rule, begin_us: int
) -> tuple[messages.Arming, bytes]:
    namespace = f"firing-{number % _NAMESPACES}"
    created_us = begin_us - number // _NAMESPACES % _STEPS * 1_000_000
    due_us = created_us + -(-(begin_us - created_us) // _PERIOD_US) * _PERIOD_US
    known = definition.Definition(
        namespace=namespace,
        name=f"fires-{number}",
        uid=str(uuid.uuid4()),
        generation=1,
        timing_generation=1,
        created_us=created_us,
        not_before_us=due_us - 1,
        state=definition.State.ARMED,
        rule=rule,
        target=queue.signed_blobs.digest(namespace, _BLOB),
    )
    return messages.Arming(definition=known, due_us=due_us), _BLOB


async def _creator(url: str, count: int, seconds: float) -> None:
    """Creates evenly for so long; prints how many."""
    created = 0
    async with place.queue(url, count) as queue:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            if created < passed * _CREATES_A_MINUTE / 60:
                due_us = points_place.now_us() + 3_600_000_000
                first = count + created
                ((arming, blob),) = source.wanted(queue, first, first + 1, due_us)
                await queue.writer.upsert([(arming, blob)], points_place.EPOCH)
                created += 1
            else:
                await asyncio.sleep(0.002)
    print(created, flush=True)


if __name__ == "__main__":
    uvloop.run(_creator(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
