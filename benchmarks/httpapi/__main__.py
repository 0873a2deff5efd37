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
    if unknown := set(names) - set(KNOWN):
        report.say(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(KNOWN)}")
        return 2
    print(report.environment(), flush=True)
    small = os.environ.get("SMALL") == "1"
    missed = 0
    for name in names or USUAL:
        module = importlib.import_module(f"benchmarks.httpapi.{name}")
        for figure in uvloop.run(module.run(small=small)):
            print(figure.line(), flush=True)
            missed += figure.holds is False
    return 1 if missed and os.environ.get("CHECK") == "1" else 0


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    sys.exit(main(sys.argv[1:]))
