"""``python -m benchmarks.queuespeed [NAME ...]``: all parts, or those named.

``KIND`` chooses the server (valkey, redis-server); ``SMALL=1`` runs a hundredth of the flood and a
tenth of the rest, to see that everything works.
"""

from __future__ import annotations

import os
import sys

from benchmarks import report
from benchmarks.queuespeed import calm, chain, claims, fairness, flood, policies, recovery

_SMALL = os.environ.get("SMALL") == "1"
_KIND = os.environ.get("KIND", "valkey")
PARTS = {
    "claims": lambda: claims.run(_KIND, counts=(10_000,) if _SMALL else (10_000, 100_000)),
    "chain": lambda: chain.run(_KIND, count=20_000 if _SMALL else 100_000),
    "calm": lambda: calm.run(_KIND),
    "flood": lambda: flood.run(_KIND, count=20_000 if _SMALL else 1_000_000),
    "fairness": lambda: fairness.run(_KIND, count=10_000 if _SMALL else 100_000),
    "recovery": lambda: recovery.run(_KIND),
    "policies": lambda: policies.run(_KIND, counts=(1_000,) if _SMALL else (1_000, 10_000)),
}

if __name__ == "__main__":
    sys.exit(report.measure(PARTS))
