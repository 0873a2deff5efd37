"""Redis comes back with an older state: no Job twice, no slot lost, and how soon does it continue?

Valkey is killed and started again from a snapshot that is 1, 10 or 30 s or an hour old, each with
the leader alive and with the leader killed in that moment. Jobs run every second for each catch-up
policy, with history limits 0 and 1, beside webhooks. The server is away for 3 s each time.
``tests.support.fallingback`` describes how it fakes the hour. ``CASES=1,10`` chooses among 1, 10,
30 and hour; ``CASES=many`` is that of 10 s beside 100,000 other Schedules (``COUNT=``), which are
written to etcd.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator, Sequence

from benchmarks import report, scene
from benchmarks.kube import stock
from benchmarks.report import Figure
from tests.support import fallingback
from tests.support.fallingback import Result, Wanted
from tests.support.stack import Stack

_AGES = {
    "1": {"back_seconds": 1.0},
    "10": {"back_seconds": 10.0},
    "30": {"back_seconds": 30.0},
    "hour": {"back_seconds": 2.0, "forged_seconds": 3600},
}
#: Slots that come due in this time are overdue when the server answers.
_AWAY_SECONDS = 3.0
_ARMED_WITHIN_SECONDS = 600
CASES = (os.environ.get("CASES") or ("1" if report.IS_SMALL else ",".join(_AGES))).split(",")
_AGES["many"] = {"back_seconds": 10.0}  # not by default: it takes minutes
COUNT = int(report.number("COUNT", 100_000))


async def run() -> list[Figure]:
    found = []
    for case in CASES:
        for leader_dies in (False, True):
            wanted = Wanted(
                **_AGES[case],  # type: ignore[arg-type]
                away_seconds=_AWAY_SECONDS,
                leader_dies=leader_dies,
            )
            found.append(await _one(case, wanted))
    return list(_figures(found))


async def _one(case: str, wanted: Wanted) -> Result:
    leader = "killed" if wanted.leader_dies else "alive"
    async with scene.stack() as stack:
        others = (lambda: _lay_many(stack)) if case == "many" else None
        found = await fallingback.Scene(stack, wanted, others=others).run()
    report.say(
        f"back by {case}, the leader {leader}: {found.slots} slots of Jobs,"
        f" {len(found.doubled)} doubled,"
        f" {found.lost or 0} lost, {len(found.repeated)} webhooks repeated; later ones within"
        f" {max(found.later_seconds, default=0):.2f} s, overdue within"
        f" {max(found.overdue_seconds, default=0):.2f} s"
    )
    for name, slot in (*found.doubled[:10], *found.phantoms[:10]):
        report.say(f"  doubled, or not a slot: {name} {slot}")
    return found


async def _lay_many(stack: Stack) -> None:
    """Put ``COUNT`` Schedules that are due next year into etcd, and wait until they are armed."""
    name = stock.copy_name(0, 0)
    made = await stack.apply(name, {"schedule": "0 0 1 1 *", "webhook": stack.webhook()})
    await stack.wait_until_ready(name)
    shape = stock.Shape(schedule=stock.Named(name=name, uid=made["metadata"]["uid"]))
    report.say(f"{COUNT} Schedules into etcd")
    await stock.lay(stack.plane.etcd, stack.namespace, [shape], COUNT - 1)
    began = time.monotonic()
    while (armed := await asyncio.to_thread(_armed, stack)) < COUNT:
        if time.monotonic() - began > _ARMED_WITHIN_SECONDS:
            raise AssertionError(f"{armed} of {COUNT} are armed after 10 min")
        await asyncio.sleep(2)
    report.say(f"  armed {time.monotonic() - began:.0f} s after the last was written")


def _armed(stack: Stack) -> int:
    with stack.redis.client() as client:
        lanes = client.scan_iter(match="*:points:*", count=1000)
        return sum(client.zcard(lane) - 1 for lane in lanes)  # each has a sentinel


def _figures(found: Sequence[Result]) -> Iterator[Figure]:
    bench = report.Bench("fallback")
    slots = sum(one.slots for one in found)
    doubled = sum(len(one.doubled) + len(one.phantoms) for one in found)
    lost = sum(max(0, count) for one in found for count in one.lost.values())
    wrongly = sum(max(0, -count) for one in found for count in one.lost.values())
    yield bench.one("slots whose Job was made twice", doubled, "slots", "= 0", runs=slots)
    yield bench.one("slots that neither ran nor count as missed", lost, "slots", "= 0", runs=slots)
    yield bench.one("slots that ran and count as missed", wrongly, "slots", "= 0", runs=slots)
    unsettled = sum(len(one.unsettled) for one in found)
    yield bench.one("schedules whose status did not settle", unsettled, "schedules", "= 0")
    yield bench.one("webhooks sent again", sum(len(one.repeated) for one in found), "slots")
    for figure, bar, values in (
        ("slots due only after the new server's answer, from their due", "<= 1",
         [seconds for one in found for seconds in one.later_seconds]),
        ("slots due while the server was away, from its answer", "<= 30",
         [seconds for one in found for seconds in one.overdue_seconds]),
    ):  # fmt: skip
        beside = f"median {statistics.median(values):.3f} s" if values else "nothing came"
        worst = round(max(values, default=0.0), 3)
        yield bench.one(figure, worst, "s", bar, runs=len(values), beside=beside)
