"""Waiting for facts that announce themselves nowhere."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How long a test waits for a signal. It decides when a broken test says so, and nothing else: a
#: working one goes on with the signal, and a machine that others use as well may take its time.
LONGEST_SECONDS = 120.0


def wait_until(holds: Callable[[], bool], what: str, seconds: float = LONGEST_SECONDS) -> None:
    """Poll a blocking check; for facts with an event, wait for the event instead."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s until {what}, in vain")
        time.sleep(0.02)
