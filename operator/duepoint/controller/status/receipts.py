"""What has to be in a status before a stream entry may be forgotten.

A stream entry carries events of many Schedules. It is acknowledged when every status that its
events changed has been written (or needs no write any more), never before: a crash in between
reads it again, and the fold knows what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Receipt:
    """Counts what is outstanding; calls back once when nothing is."""

    when_done: Callable[[], None]
    outstanding: int = 1

    def expect(self) -> None:
        """One more status has to be written."""
        self.outstanding += 1

    def settle(self) -> None:
        """One status less."""
        self.outstanding -= 1
        if self.outstanding == 0:
            self.when_done()
