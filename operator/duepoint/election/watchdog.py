"""Ends the process when the event loop is stuck past the end of what it was trusted with.

A leader whose loop is blocked cannot take its flag down, while threads of the same process go on
working in its name. So a thread of its own keeps the deadline: the loop moves it on at each
renewal and lifts it when the term is over. ``exit_process`` is the one way out for both.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import structlog

from duepoint import clock as clocks

_log = structlog.get_logger(__name__)

_monotonic = clocks.SystemClock().monotonic
#: The thread looks at the clock this often: its waits do not count what a machine was suspended.
_LOOK_SECONDS = 1.0
#: EX_SOFTWARE of sysexits.h: the supervisor starts us again.
EXIT_CODE = 70


def exit_process(why: str) -> None:
    """Say why on standard error and end at once, without unwinding what may be stuck."""
    _log.critical("leaving the process", reason=why)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


class Watchdog:
    """One thread that holds a deadline of the monotonic clock, or none.

    Args:
        leave: called once, from the thread, when a deadline passes.
        monotonic: the clock that the deadlines are on.
    """

    def __init__(
        self,
        leave: Callable[[str], None] = exit_process,
        monotonic: Callable[[], float] = _monotonic,
    ) -> None:
        self._leave = leave
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def guard(self, deadline: float) -> None:
        """From now on this is the deadline."""
        with self._changed:
            self._deadline = deadline
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        """No deadline any more."""
        with self._changed:
            self._deadline = None
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                left = None if self._deadline is None else self._deadline - self._monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(None if left is None else min(left, _LOOK_SECONDS))
            if self._closed:
                return
        self._leave("the event loop was blocked past the end of the leader's term")
