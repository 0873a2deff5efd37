"""Functions that poll for facts that no event announces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

#: How long a test waits for a signal. It only decides when a broken test fails: a working one goes
#: on as soon as the signal comes, and a shared machine may be slow.
LONGEST_SECONDS = 120.0


def wait_until(holds: Callable[[], bool], what: str, seconds: float = LONGEST_SECONDS) -> None:
    """Poll a blocking check; for facts with an event, wait for the event instead."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s until {what}, in vain")
        time.sleep(0.02)


#: The pause between two checks that start a process each; more of them would keep a core busy.
OF_PROCESSES_SECONDS = 1.0


async def eventually(
    holds: Callable[[], Awaitable[bool]], what: str, *, pause_seconds: float = 0.1
) -> None:
    """Poll an awaitable check, with this pause after each failure.

    Most checks ask an API server; fifty times a second would cost it and us half a core.
    """
    deadline = time.monotonic() + LONGEST_SECONDS
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LONGEST_SECONDS:g} s until {what}, in vain")
        await asyncio.sleep(pause_seconds)
