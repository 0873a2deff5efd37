"""A Redis that comes back with an older state: no Job twice, no slot lost, and how soon it goes on.

Real processes, an API server and a Valkey that is killed and started again from a snapshot: one of
1, 10 and 30 s, and one that is an hour old, each with the leader alive and killed in that moment;
Jobs every second for each catch-up policy, with history limits 0 and 1, beside webhooks. The server
is away for 3 s each time. How the hour is made stands in ``tests.support.fallingback``.
``CASES=1,10`` chooses among 1, 10, 30, hour; ``CASES=many`` is that of 10 s beside 100,000 other
Schedules, which are laid into etcd (``COUNT=``).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence

from benchmarks import kubestock, report, scene
from benchmarks.report import Figure
from tests.support import fallingback
from tests.support.fallingback import Result, Wanted
from tests.support.stack import Stack

NAME = "fallback"
_AGES = {
    "1": {"back_seconds": 1.0},
    "10": {"back_seconds": 10.0},
    "30": {"back_seconds": 30.0},
    "hour": {"back_seconds": 2.0, "forged_seconds": 3600},
}
#: Slots come due meanwhile, which are overdue when the server answers.
_AWAY_SECONDS = 3.0
_ARMED_WITHIN_SECONDS = 600
CASES = tuple(os.environ.get("CASES", ",".join(_AGES)).split(","))
_AGES["many"] = {"back_seconds": 10.0}  # not among the usual ones: it takes minutes
COUNT = int(os.environ.get("COUNT", "100000"))


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
    return _figures(found)


async def _one(case: str, wanted: Wanted) -> Result:
    leader = "killed" if wanted.leader_dies else "alive"
    async with scene.stack() as stack:
        others = (lambda: _lay_many(stack)) if case == "many" else None
        found = await fallingback.Scene(stack, wanted, others=others).run()
    report.say(
        f"back by {case}, the leader {leader}: {found.slots} slots of Jobs, {found.compared} points"
        f" compared, {len(found.doubled)} doubled, {found.lost or 0} lost,"
        f" {len(found.repeated)} webhooks repeated; later ones within"
        f" {max(found.later_seconds, default=0):.2f} s, overdue within"
        f" {max(found.overdue_seconds, default=0):.2f} s"
    )
    for name, slot in (*found.doubled[:10], *found.phantoms[:10]):
        report.say(f"  doubled, or never a slot: {name} {slot}")
    return found


async def _lay_many(stack: Stack) -> None:
    """Schedules that are due next year, armed."""
    name = kubestock.copy_name(0, 0)
    made = await stack.apply(name, {"schedule": "0 0 1 1 *", "webhook": stack.webhook()})
    await stack.wait_until_ready(name)
    shape = kubestock.Shape(schedule=kubestock.Named(name=name, uid=made["metadata"]["uid"]))
    report.say(f"{COUNT} Schedules into etcd")
    await kubestock.lay(stack.plane.etcd, stack.namespace, [shape], COUNT - 1)
    began = time.monotonic()
    while (armed := await asyncio.to_thread(_armed, stack)) < COUNT:
        if time.monotonic() - began > _ARMED_WITHIN_SECONDS:
            raise AssertionError(f"{armed} of {COUNT} are armed after 10 min")
        await asyncio.sleep(2)
    report.say(f"  armed {time.monotonic() - began:.0f} s after the last was laid")


def _armed(stack: Stack) -> int:
    with stack.redis.client() as client:
        lanes = client.scan_iter(match="*:points:*", count=1000)
        return sum(client.zcard(lane) - 1 for lane in lanes)  # each has a sentinel


def _figures(found: Sequence[Result]) -> list[Figure]:
    slots = sum(one.slots for one in found)
    doubled = sum(len(one.doubled) + len(one.phantoms) for one in found)
    lost = sum(max(0, count) for one in found for count in one.lost.values())
    wrongly = sum(max(0, -count) for one in found for count in one.lost.values())
    later = [seconds for one in found for seconds in one.later_seconds]
    overdue = [seconds for one in found for seconds in one.overdue_seconds]
    return [
        Figure(benchmark=NAME, figure="slots whose Job was made twice", value=doubled,
               unit="slots", bar="= 0", runs=slots),
        Figure(benchmark=NAME, figure="slots that neither ran nor were told as missed", value=lost,
               unit="slots", bar="= 0", runs=slots),
        Figure(benchmark=NAME, figure="slots that ran and were told as missed", value=wrongly,
               unit="slots", bar="= 0", runs=slots),
        Figure(benchmark=NAME, figure="schedules whose status did not come to rest",
               value=sum(len(one.unsettled) for one in found), unit="schedules", bar="= 0"),
        Figure(benchmark=NAME, figure="webhooks delivered again",
               value=sum(len(one.repeated) for one in found), unit="slots"),
        _seconds("first slot due after the new server's answer, from its due", later, "<= 1"),
        _seconds("slots due while the server was away, from its answer", overdue, "<= 30"),
    ]  # fmt: skip


def _seconds(figure: str, values: Sequence[float], bar: str) -> Figure:
    """The worst, beside the median."""
    return Figure(
        benchmark=NAME, figure=figure, value=round(max(values, default=0.0), 3), unit="s", bar=bar,
        spread=(round(min(values, default=0.0), 3), round(max(values, default=0.0), 3)),
        runs=len(values),
        compared_with=f"median {statistics.median(values):.3f} s" if values else "nothing came",
    )  # fmt: skip
