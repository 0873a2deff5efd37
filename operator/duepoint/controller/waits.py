"""Waiting for an event or a moment, whichever comes first."""

from __future__ import annotations

import asyncio

from duepoint.clock import Clock


async def wait_for(event: asyncio.Event, seconds: float | None, clock: Clock) -> None:
    """Return when the event is set or so many seconds have passed; None = only the event."""
    if seconds is None:
        await event.wait()
        return
    told = asyncio.ensure_future(event.wait())
    slept = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({told, slept}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        slept.cancel()
