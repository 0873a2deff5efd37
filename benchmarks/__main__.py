"""``python -m benchmarks [NAME [PART ...]]``: run the benchmark of that name, or the short ones.

Most need a cluster of their own, which ``make bench NAME=...`` starts.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import signal
import sys
from pathlib import Path

import uvloop

from benchmarks import report
from duepoint import app, telemetry

#: Each is a module with ``run``, a coroutine or generator of figures that may take names of parts.
NEEDING_A_CLUSTER = {
    name: f"benchmarks.{name.replace('-', '.')}"
    for name in (
        *("lateness", "idle", "edits", "flush", "fallback", "tenants", "api", "members-kills"),
        *("kube-burst", "kube-scale", "kube-restart"),
    )
}
ON_A_REAL_NODE = {"real-burst": "benchmarks.realburst"}
ALONE = {
    "queue": "benchmarks.queuespeed",
    "webhook": "benchmarks.webhook",
    "members": "benchmarks.members.million",
    "peers": "benchmarks.peers",
}
SHORT = ("lateness", "idle")


def main(names: list[str]) -> int:
    known = {**NEEDING_A_CLUSTER, **ON_A_REAL_NODE, **ALONE}
    name, *parts = names or [""]
    chosen = [name] if name else list(SHORT)
    if unknown := set(chosen) - set(known):
        report.say(f"unknown benchmark: {', '.join(unknown)}; known are {', '.join(known)}")
        return 2
    if "DUEPOINT_TEST_STATE" not in os.environ and set(chosen) - set(ALONE):
        report.say("this needs a cluster of its own: make bench NAME=...")
        return 2
    telemetry.configure_logging("warning", "text")
    gc.freeze()  # as the processes do
    gc.set_threshold(*app.GC_THRESHOLDS)
    print(report.environment(), flush=True)
    all_hold = True
    for each in chosen:
        all_hold &= uvloop.run(_run(known[each], parts))
    return 1 if os.environ.get("CHECK") == "1" and not all_hold else 0


async def _run(module: str, parts: list[str]) -> bool:
    task = asyncio.current_task()
    assert task is not None
    # Or its processes would stay, and share the machine with the next benchmark.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    figures = importlib.import_module(module).run(*parts)
    return await report.show(await figures if inspect.isawaitable(figures) else figures)


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])
    sys.exit(main(sys.argv[1:]))
