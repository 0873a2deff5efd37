"""Set this process's wall clock off by WRONG_CLOCK_SECONDS; Python imports this module first.

The monotonic clock stays right, as it does when a machine's clock is set wrong. This works without
libfaketime, and certificates are still verified by the true time.
"""

from __future__ import annotations

import os
import time

_OFF_NS = int(float(os.environ.get("WRONG_CLOCK_SECONDS", "0")) * 1_000_000_000)
_time, _time_ns, _gettime = time.time, time.time_ns, time.clock_gettime


def _shifted_gettime(number: int) -> float:
    off = _OFF_NS / 1_000_000_000 if number == time.CLOCK_REALTIME else 0.0
    return _gettime(number) + off


if _OFF_NS:
    time.time = lambda: _time() + _OFF_NS / 1_000_000_000
    time.time_ns = lambda: _time_ns() + _OFF_NS
    time.clock_gettime = _shifted_gettime
