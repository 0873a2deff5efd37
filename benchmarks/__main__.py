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
LONG = ("kube", "edits", "flush", "fallback", "tenants", "firststeps")

#: These need no cluster.
ALONE = ("expressions",)


def main(names: list[str]) -> int:
    known = (*SCENARIOS, *LONG, *ALONE)
    if unknown := set(names) - set(known):
        report.say(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    if "DUEPOINT_TEST_STATE" not in os.environ and set(names or SCENARIOS) - set(ALONE):
        report.say("these need a cluster of their own: run `make bench` or `make bench-NAME`")
        return 2
    print(report.environment(), flush=True)
    missed = 0
    for name in names or SCENARIOS:
        scenario = importlib.import_module(f"benchmarks.{name}")
        for figure in asyncio.run(scenario.run()):
            print(figure.line(), flush=True)
            missed += figure.holds is False
    return 1 if missed and os.environ.get("CHECK") == "1" else 0


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])
    sys.exit(main(sys.argv[1:]))
