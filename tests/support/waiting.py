"""Waiting for facts that announce themselves nowhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

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


async def eventually(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """The same for a check that is awaited."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LONGEST_SECONDS:g} s until {what}, in vain")
        await asyncio.sleep(0.02)
