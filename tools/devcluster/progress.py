"""Progress on standard error: one line per step, and elapsed seconds for the long ones.

Standard output belongs to results (`env` prints shell code there). A long step says how long it
usually takes; on a terminal its line is rewritten every second, elsewhere a line follows every
half minute, so that a build log stays readable. Steps that go on side by side share one line, which
says how much time is left by how long the finished ones have taken.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

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


class SideBySide:
    """Steps that share the cores; they take as long as all of them together.

    Args:
        usual: name -> seconds that each usually takes alone, on 2 cores.
        monotonic: for tests.
    """

    def __init__(
        self, usual: Mapping[str, int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._usual = dict(usual)
        self._total = sum(usual.values())
        self._monotonic = monotonic
        self._started = monotonic()
        self._finished = 0
        self._slowness = 1.0

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the time until the block ends."""
        names = ", ".join(self._usual)
        say(f"Building {names}, once (usually {duration(self._total)} on 2 cores)")
        with _ticking(self.line):
            yield
        say(f"  done after {duration(self._monotonic() - self._started)}")

    def finish(self, name: str) -> None:
        """One of them is done."""
        self._finished += self._usual.pop(name)
        # They share the cores: while one has taken its time, the others have come on, too. By now
        # at least its own share of the work was done, two at a time.
        most_done = min(self._total, self._finished * 2)
        self._slowness = max(1.0, (self._monotonic() - self._started) / most_done)
        say(f"  {name} is ready; {self.line()}" if self._usual else f"  {name} is ready")

    def line(self) -> str:
        """How long it has taken, what is under way, and how long that will take."""
        elapsed = self._monotonic() - self._started
        left = self._seconds_left(elapsed)
        rest = f"about {duration(left)} left" if left > 0 else "longer than usual"
        return f"{duration(elapsed)}, {rest} for {', '.join(self._usual) or 'nothing'}"

    def _seconds_left(self, elapsed: float) -> float:
        """The rest of the usual total, at the pace that the last one to finish has shown."""
        return self._total * self._slowness - elapsed if self._usual else 0.0


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
