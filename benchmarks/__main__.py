"""``python -m benchmarks [NAME ...]``: all short scenarios, or those named."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path

from benchmarks import report

SCENARIOS = ("lateness", "ready", "idle", "partition")

#: Too long to be run with the others.
LONG = ("kube", "edits", "flush", "fallback", "outages", "tenants", "firststeps")

#: These need no cluster.
ALONE = ("expressions",)


def main(names: list[str]) -> int:
    known = (*SCENARIOS, *LONG, *ALONE)
    if report.refuses(names, known):
        return 2
    if "DUEPOINT_TEST_STATE" not in os.environ and set(names or SCENARIOS) - set(ALONE):
        report.say("these need a cluster of their own: run `make bench` or `make bench-NAME`")
        return 2
    print(report.environment(), flush=True)
    missed = 0
    for name in names or SCENARIOS:
        scenario = importlib.import_module(f"benchmarks.{name}")
        missed += report.show(asyncio.run(scenario.run()))
    return report.exit_code(missed)


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])
    sys.exit(main(sys.argv[1:]))
