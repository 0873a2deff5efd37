"""``python -m benchmarks.webhooks [NAME ...]``: rate, quiet, and outage, which takes its time.

SMALL=1 measures little of each, CHECK=1 makes a missed bar an error; the outage lasts DOWN seconds,
ten minutes unless set otherwise.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

import uvloop

from benchmarks import report
from duepoint import app

USUAL = ("rate", "quiet")
KNOWN = (*USUAL, "outage")


def main(names: list[str]) -> int:
    if report.refuses(names, KNOWN):
        return 2
    print(report.environment(), flush=True)
    gc.freeze()
    gc.set_threshold(*app.GC_THRESHOLDS)  # as the product's processes have them
    small = os.environ.get("SMALL") == "1"
    missed = 0
    for name in names or USUAL:
        module = importlib.import_module(f"benchmarks.webhooks.{name}")
        missed += report.show(uvloop.run(module.run(small=small)))
    return report.exit_code(missed)


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    sys.exit(main(sys.argv[1:]))
