"""``python -m benchmarks.webhooks [NAME ...]``: rate, quiet, and outage, which takes its time.

SMALL=1 measures little of each, CHECK=1 makes a missed bar an error; the outage lasts DOWN seconds,
ten minutes unless set otherwise.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.webhooks import outage, quiet, rate

_SMALL = os.environ.get("SMALL") == "1"
PARTS = {"rate": rate, "quiet": quiet, "outage": outage}

if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    parts = {name: functools.partial(part.run, small=_SMALL) for name, part in PARTS.items()}
    sys.exit(report.measure(parts, ("rate", "quiet")))
