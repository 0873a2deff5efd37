"""``python -m benchmarks.httpapi [NAME ...]``: load, on a cluster of its own, and servers, without.

SMALL=1 measures little of each, CHECK=1 makes a missed bar an error.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import uvloop

from benchmarks import report

USUAL = ("load",)
KNOWN = (*USUAL, "servers")


def main(names: list[str]) -> int:
    if report.refuses(names, KNOWN):
        return 2
    print(report.environment(), flush=True)
    small = os.environ.get("SMALL") == "1"
    missed = 0
    for name in names or USUAL:
        module = importlib.import_module(f"benchmarks.httpapi.{name}")
        missed += report.show(uvloop.run(module.run(small=small)))
    return report.exit_code(missed)


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    sys.exit(main(sys.argv[1:]))
