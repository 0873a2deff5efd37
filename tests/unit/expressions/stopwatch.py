"""How much processor time something took, undisturbed by other processes and by the collector."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def cpu_seconds() -> Iterator[Callable[[], float]]:
    """Yields a function that tells the CPU seconds of this thread since the beginning."""
    collecting = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    try:
        yield lambda: time.thread_time() - began
    finally:
        if collecting:
            gc.enable()
