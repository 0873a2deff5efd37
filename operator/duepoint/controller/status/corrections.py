"""Statuses that another client has changed: when ours is written again.

A status that differs from the published one is written over after two seconds, unless ours is seen
before: what this process wrote is observed with a delay. Each further time the wait doubles, so two
writers that disagree cost the API server little. The status of another installation is left alone:
that one is reported, and not fought. No I/O.
"""

from __future__ import annotations

import msgspec

from duepoint.clock import Clock
from duepoint.controller.sighting import UNKNOWN, Sighting
from duepoint.controller.status import published, writerate
from duepoint.controller.status.state import ScheduleState

#: A status that another client keeps changing is corrected at least this often.
_LONGEST_SECONDS = 600.0
_MOST_COUNTED = 16


class _Foreign(msgspec.Struct):
    """One object whose observed status was not ours.

    Attributes:
        status: as it was observed last; empty where ours was observed since.
        due: when it is to be written over.
        count: how often that was done of late, ``last`` time at that instant.
    """

    status: bytes = b""
    due: float = 0.0
    count: int = 0
    last: float = 0.0


class Corrections:
    """Observed statuses that differ from ours, by uid."""

    def __init__(self, clock: Clock, mark: bytes) -> None:
        self._clock = clock
        self._mark = mark
        self._foreign: dict[str, _Foreign] = {}

    def observe(self, state: ScheduleState, seen: Sighting) -> float | None:
        """Seconds until the status is to be written over; None = it is not."""
        if seen.status == UNKNOWN or state.is_published(seen.status):
            self.written(seen.uid)
            return None
        if self._mark not in seen.status and published.managed_by(seen.status):
            return None
        if seen.generation < state.generation:
            return None  # the object was restored
        foreign, now = self._foreign.setdefault(seen.uid, _Foreign()), self._clock.monotonic()
        if now - foreign.last > 2 * _LONGEST_SECONDS:
            foreign.count, foreign.last = 0, now
        wait: float = min(writerate.STALENESS_SECONDS * 2**foreign.count, _LONGEST_SECONDS)
        foreign.status, foreign.due = seen.status, now + wait
        return wait

    def is_due(self, state: ScheduleState) -> bool:
        """Whether another status is published, and is to be written over now."""
        foreign, now = self._foreign.get(state.uid), self._clock.monotonic()
        if foreign is None or not foreign.status or now < foreign.due:
            return False
        if state.is_published(foreign.status):
            return False
        foreign.count, foreign.last = min(foreign.count + 1, _MOST_COUNTED), now
        return True

    def written(self, uid: str) -> None:
        """Our status is published."""
        if (foreign := self._foreign.get(uid)) is not None:
            foreign.status = b""

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._foreign.pop(uid, None)
