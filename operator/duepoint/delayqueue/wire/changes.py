"""What changes about servers: who holds what, and whether one is still what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ServerChanges:
    """Counts changes, and calls those who have to know.

    Attributes:
        generation: grows whenever it may have changed who holds what.
        upheavals: how often a server turned out not to be the one it was: writes may be lost.
        on_upheaval: called at each upheaval, before anything is sent to the other server.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.upheavals = 0
        self.on_upheaval: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    def note_change(self) -> None:
        self.generation += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seen: int) -> int:
        """The generation, once it is not the one that was seen."""
        while self.generation == seen:
            await self._changed.wait()
        return self.generation

    def note_upheaval(self) -> None:
        self.upheavals += 1
        for report in self.on_upheaval:
            report()
