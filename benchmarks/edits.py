"""Ten thousand random edits: none is overtaken by a run of an older generation.

``EDITS=`` changes the number; Schedules fire every second or two while they are edited.
"""

from __future__ import annotations

import os

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.support import editing

EDITS = int(os.environ.get("EDITS", "10000"))
SCHEDULES = 60
WITH_JOBS = 10
NAME = "edits"


#: Progress is reported this often.
_STEP = 500


def _tell(seen: int) -> None:
    if seen % _STEP == 0:
        report.say(f"  {seen} seen Ready")


async def run() -> list[Figure]:
    async with scene.stack() as stack:
        await stack.running()
        report.say(f"{EDITS} random edits of {SCHEDULES} Schedules that fire every second or two")
        editor = editing.Editor(stack, schedules=SCHEDULES, jobs=WITH_JOBS, seed=1)
        found = await editor.run(edits=EDITS, on_seen=_tell)
    waits = [seconds * 1000 for seconds in found.ready_seconds]
    spread = (min(waits), max(waits))
    report.say(f"{found.runs} runs, {found.judged} of them after a generation seen Ready")
    return [
        Figure(benchmark=NAME, figure="runs of an older generation after Ready",
               value=len(found.stale), unit="runs", bar="= 0", runs=found.edits),
        Figure(benchmark=NAME, figure="runs that were judged", value=found.judged, unit="runs",
               runs=found.edits),
        Figure(benchmark=NAME, figure="apply to Ready p50", value=report.percentile(waits, 0.5),
               unit="ms", spread=spread, runs=found.edits),
        Figure(benchmark=NAME, figure="apply to Ready p99", value=report.percentile(waits, 0.99),
               unit="ms", spread=spread, runs=found.edits),
    ]  # fmt: skip
