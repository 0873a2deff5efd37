"""Progress messages on standard error: a line per step, with elapsed seconds for long ones.

Standard output belongs to results (`env` prints shell code there). A long step says how long it
usually takes, and every half minute that it goes on.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

EVERY_SECONDS = 30.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def long_step(text: str, usual_seconds: int) -> Iterator[None]:
    """Show that step `text` runs until the block ends, and how long it took if it succeeds."""
    say(f"{text} (usually {duration(usual_seconds)} on 2 cores)")
    started = time.monotonic()
    finished = threading.Event()

    def tick() -> None:
        while not finished.wait(EVERY_SECONDS):
            say(f"  ... {duration(time.monotonic() - started)}")

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        finished.set()
        ticker.join()
    say(f"  done after {duration(time.monotonic() - started)}")


def duration(seconds: float) -> str:
    """Return whole seconds up to two minutes, then minutes and seconds."""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"
