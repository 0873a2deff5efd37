"""Turns for what holds the process up: one text at a time is read closely, namespaces in turn.

Strict reading of a hostile text takes milliseconds for each KiB, and all others wait for it. After
a long one the next text waits as long as that took, so at least half of the process is left to
requests that are read quickly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from duepoint import shares

_LONG_SECONDS = 0.03


class Turns:
    """Hands out turns; for one event loop."""

    def __init__(self) -> None:
        self._places: shares.FairPlaces[str] = shares.FairPlaces(1)

    @contextlib.asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """A turn of this owner; what is done in it does not wait for anything."""
        await self._places.wait(owner)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            spent = loop.time() - began
            if spent > _LONG_SECONDS:
                loop.call_later(spent, self._places.leave, owner)
            else:
                self._places.leave(owner)
