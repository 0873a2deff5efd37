"""Single keys of the terminal, while a live view is shown."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def quitting() -> Iterator[Callable[[], bool]]:
    """Whether q was pressed since the last question; without a terminal of our own never.

    A process in the background would be stopped by the terminal if it changed its settings.
    """
    descriptor = sys.stdin.fileno() if sys.stdin.isatty() else -1
    if descriptor < 0 or os.tcgetpgrp(descriptor) != os.getpgrp():
        yield lambda: False
        return
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield lambda: b"q" in _typed(descriptor).lower()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _typed(descriptor: int) -> bytes:
    typed = b""
    while select.select([descriptor], [], [], 0)[0] and (more := os.read(descriptor, 1_024)):
        typed += more
    return typed
