"""Redis is emptied five times under 40 webhooks whose receiver refuses half, beside kills.

Each slot of the Schedules must be delivered in the end, and none again after a status has shown its
end. ``SECONDS=`` and ``SCHEDULES=`` change the size.
"""

from __future__ import annotations

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.support import flushing

SECONDS = int(report.number("SECONDS", 200, 60))
SCHEDULES = int(report.number("SCHEDULES", 40, 10))
LOSSES = 1 if report.IS_SMALL else 5


async def run() -> list[Figure]:
    wanted = flushing.Wanted(
        schedules=SCHEDULES, seconds=SECONDS, every_seconds=2, losses=LOSSES, kills=True
    )
    report.say(f"{SCHEDULES} webhooks every 2 s for {SECONDS} s, Redis emptied {LOSSES} times")
    async with scene.stack() as stack:
        found = await flushing.Scene(stack, wanted).run()
    report.say(f"{found.slots} slots, {found.requests} requests, {len(found.repeated)} repeats")
    for name, slot in found.lost[:10]:
        report.say(f"  lost: {name} {slot}")
    bench, runs = report.Bench("flush"), found.slots
    late = "repeats of slots that ended before the last status interval"
    left_open = "schedules whose status stays Running or open"
    return [
        bench.one("slots that were lost", len(found.lost), "slots", "= 0", runs=runs),
        bench.one(late, len(found.late), "slots", "= 0", runs=runs),
        bench.one(left_open, len(found.left_open), "schedules", "= 0", runs=runs),
        bench.one("repeats", len(found.repeated), "slots", runs=runs),
    ]
