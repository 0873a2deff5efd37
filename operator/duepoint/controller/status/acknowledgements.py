"""What has to be published before a stream entry may be acknowledged.

A stream entry carries events of many Schedules. It is acknowledged when every status that its
events changed has been written, or needs no write any more. A crash before that reads the entry
again, and the fold recognises what it has counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Acknowledgement:
    """Counts the statuses that are outstanding; calls back once when none is."""

    when_done: Callable[[], None]
    outstanding: int = 1

    def expect(self) -> None:
        """One more status has to be written."""
        self.outstanding += 1

    def settle(self) -> None:
        """One status less has to be written."""
        self.outstanding -= 1
        if self.outstanding == 0:
            self.when_done()


def settle_all(acks: Iterable[Acknowledgement]) -> None:
    """One status less for each of these."""
    for ack in acks:
        ack.settle()
