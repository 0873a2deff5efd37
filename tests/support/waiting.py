"""Waiting for facts that announce themselves nowhere."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Poll a blocking check; for facts with an event, wait for the event instead."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s until {what}, in vain")
        time.sleep(0.02)
