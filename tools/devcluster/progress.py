"""Progress on standard error: one line per step, and elapsed seconds for the long ones.

Standard output belongs to results (`env` prints shell code there). A long step says how long it
usually takes; on a terminal its line is rewritten every second, elsewhere a line follows every
half minute, so that a build log stays readable.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from duepoint.cli import output

TERMINAL_INTERVAL_SECONDS = 1.0
LOG_INTERVAL_SECONDS = 30.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def long_step(text: str, usual_seconds: int) -> Iterator[None]:
    """Show that `text` is going on until the block ends, and how long it took when it went well."""
    say(f"{text} (usually {duration(usual_seconds)} on 2 cores)")
    started = time.monotonic()
    with _ticking(lambda: duration(time.monotonic() - started)):
        yield
    say(f"  done after {duration(time.monotonic() - started)}")


@contextlib.contextmanager
def _ticking(line: Callable[[], str]) -> Iterator[None]:
    finished = threading.Event()
    ticker = threading.Thread(target=_tick, args=(line, finished), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        finished.set()
        ticker.join()


def duration(seconds: float) -> str:
    """Whole seconds up to two minutes, then minutes and seconds."""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"


def _tick(line: Callable[[], str], finished: threading.Event) -> None:
    terminal = output.can_redraw(sys.stderr)
    interval = TERMINAL_INTERVAL_SECONDS if terminal else LOG_INTERVAL_SECONDS
    while not finished.wait(interval):
        if terminal:
            print(f"\r\x1b[K  ... {line()} ", end="", file=sys.stderr, flush=True)
        else:
            say(f"  ... {line()}")
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
