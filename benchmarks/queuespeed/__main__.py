"""``python -m benchmarks.queuespeed [NAME ...]``: all parts, or those named.

``KIND`` chooses the server (valkey, redis-server); ``SMALL=1`` runs a hundredth of the flood and a
tenth of the rest, to see that everything works.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from benchmarks import report
from benchmarks.queuespeed import calm, chain, claims, fairness, flood, history, policies, recovery
from benchmarks.report import Figure
from duepoint import app, telemetry

_SMALL = os.environ.get("SMALL") == "1"

PARTS: dict[str, Callable[[str], Coroutine[Any, Any, list[Figure]]]] = {
    "claims": lambda kind: claims.run(kind, counts=(10_000,) if _SMALL else (10_000, 100_000)),
    "chain": lambda kind: chain.run(kind, count=20_000 if _SMALL else 100_000),
    "history": lambda kind: history.run(kind, count=10_000 if _SMALL else 100_000),
    "calm": calm.run,
    "flood": lambda kind: flood.run(kind, count=20_000 if _SMALL else 1_000_000),
    "fairness": lambda kind: fairness.run(kind, count=10_000 if _SMALL else 100_000),
    "recovery": recovery.run,
    "policies": lambda kind: policies.run(kind, counts=(1_000,) if _SMALL else (1_000, 10_000)),
}


def main(names: list[str]) -> int:
    if report.refuses(names, PARTS, "part"):
        return 2
    telemetry.configure_logging("warning", "text")
    gc.freeze()  # as the processes do
    gc.set_threshold(*app.GC_THRESHOLDS)
    kind = os.environ.get("KIND", "valkey")
    print(report.environment(), flush=True)
    missed = 0
    for name in names or PARTS:
        missed += report.show(uvloop.run(PARTS[name](kind)))
    return report.exit_code(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
