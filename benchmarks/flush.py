"""A Redis that is emptied five times under 40 webhooks whose receiver refuses half, with kills.

Each slot of the Schedules is delivered in the end, and none is delivered again whose end a status
has shown. ``SECONDS=`` and ``SCHEDULES=`` change the size.
"""

from __future__ import annotations

import os

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.support import flushing

SECONDS = int(os.environ.get("SECONDS", "200"))
SCHEDULES = int(os.environ.get("SCHEDULES", "40"))
LOSSES = 5
NAME = "flush"


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
    runs = found.slots
    return [
        Figure(benchmark=NAME, figure="slots that were lost", value=len(found.lost), unit="slots",
               bar="= 0", runs=runs),
        Figure(benchmark=NAME, figure="repeats of slots that ended before the last status interval",
               value=len(found.late), unit="slots", bar="= 0", runs=runs),
        Figure(benchmark=NAME, figure="schedules whose status stays Running or open",
               value=len(found.left_open), unit="schedules", bar="= 0", runs=runs),
        Figure(benchmark=NAME, figure="repeats", value=len(found.repeated), unit="slots",
               runs=runs),
    ]  # fmt: skip
