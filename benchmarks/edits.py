"""Ten thousand random edits of Schedules that fire every second or two: what runs after ``Ready``?

No run that began after a Schedule showed ``Ready`` for an edit may be of an older generation.
"""

from __future__ import annotations

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.support import editing

EDITS = int(report.number("EDITS", 10_000, 300))
SCHEDULES = 60
WITH_JOBS = 10


async def run() -> list[Figure]:
    async with scene.stack() as stack:
        await stack.running()
        report.say(f"{EDITS} random edits of {SCHEDULES} Schedules that fire every second or two")
        editor = editing.Editor(stack, schedules=SCHEDULES, jobs=WITH_JOBS, seed=1)
        found = await editor.run(edits=EDITS, on_seen=_tell)
    report.say(f"{found.runs} runs, {found.judged} of them after their generation was Ready")
    waits_ms = [seconds * 1000 for seconds in found.ready_seconds]
    bench = report.Bench("edits")
    return [
        bench.one("runs of an older generation after Ready", len(found.stale), "runs", "= 0",
                  runs=found.edits),
        bench.one("runs that were judged", found.judged, "runs"),
        bench.share("apply to Ready", 0.5, waits_ms),
        bench.share("apply to Ready", 0.99, waits_ms),
    ]  # fmt: skip


def _tell(seen: int) -> None:
    if seen % 500 == 0:
        report.say(f"  {seen} seen Ready")
