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


#: Between two checks that start a process each, which would keep a core busy.
OF_PROCESSES_SECONDS = 1.0


async def eventually(
    holds: Callable[[], Awaitable[bool]], what: str, *, pause_seconds: float = 0.1
) -> None:
    """The same for a check that is awaited, again so long after it did not hold.

    Most checks ask an API server, which fifty times a second would cost it and us half a core.
    """
    deadline = time.monotonic() + LONGEST_SECONDS
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LONGEST_SECONDS:g} s until {what}, in vain")
        await asyncio.sleep(pause_seconds)
