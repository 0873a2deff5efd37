"""Detection of machine stalls by a thread that only sleeps, and notices when it wakes late.

A run shares its two cores with others. If this thread gets no time for a second, no process got
enough to be punctual, and leases may have expired for no other reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.chaos.history import Stall

_SLEEP_SECONDS = 0.05
#: A third of a claim's lease in these runs.
LEAST_SECONDS = 1.0


class StallWatch:
    """A watch for stalls from ``start`` to ``stop``.

    Args:
        note: called with each stall, in the watching thread.
    """

    def __init__(self, note: Callable[[Stall], None]) -> None:
        self._note = note
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stalls", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._over.wait(_SLEEP_SECONDS):
            now = time.monotonic()
            stall = stalled(before, now, time.time_ns() // 1000)
            if stall is not None:
                self._note(stall)
            before = now


def stalled(before: float, now: float, now_us: int) -> Stall | None:
    """Return the stall between two wakes of the thread (monotonic seconds); None if in time."""
    late = now - before - _SLEEP_SECONDS
    return (
        Stall(begin_us=now_us - int(late * 1e6), end_us=now_us) if late >= LEAST_SECONDS else None
    )
