"""The disturbances of a run, and what they excuse.

A fault disturbs from its beginning to ``recovery_us`` after its end: leases must expire, and data
that a server lost is found and restored. So does a stall of the machine, which makes leases expire
like a pause of every process at once.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.chaos.history import Fault, History, Stall
from tests.chaos.plan import FaultKind

#: A server that falls back loses less than this much time.
FORGOTTEN_US = 15_000_000
#: How early a slot may run while a clock is wrong: "When a due has come" in semantics.md.
CLOCK_TOLERANCE_US = 5_000
#: Faults after which a worker may have deleted a Job without creating the one that replaces it.
_HOLDING_UP_JOBS = (
    FaultKind.KILL_WORKER,
    FaultKind.PAUSE_WORKER,
    FaultKind.DIES_AT_POINT,
    FaultKind.API_LOST_REPLIES,
    FaultKind.API_LATE_REPLIES,
    FaultKind.API_HALF_OPEN,
    FaultKind.API_REFUSED,
    FaultKind.API_STOPPED,
    FaultKind.ETCD_STOPPED,
)


@dataclass(frozen=True, slots=True)
class Window:
    """The time from the beginning of a fault to its recovery; windows that touch are one."""

    begin_us: int
    end_us: int


class Disturbances:
    """The faults of a history, with queries by time."""

    def __init__(self, history: History) -> None:
        self.recovery_us = history.run.recovery_us
        self.lateness_us = history.run.lateness_us
        self.faults: Sequence[Fault] = sorted(history.faults, key=lambda one: one.begin_us)
        self._disturbing: Sequence[Fault | Stall] = [*self.faults, *history.stalls]
        self.windows = _merged(
            Window(one.begin_us - self.lateness_us, one.end_us + self.recovery_us)
            for one in self._disturbing
        )
        self._begins = [window.begin_us for window in self.windows]
        self._forgetting = [one for one in self.faults if one.forgets]

    def at(self, instant_us: int) -> Window | None:
        """Return the window that contains this instant."""
        place = bisect.bisect_right(self._begins, instant_us) - 1
        if place >= 0 and instant_us <= self.windows[place].end_us:
            return self.windows[place]
        return None

    def latest_us(self, due_us: int) -> int:
        """Return by when a slot with this due time must have had its effect."""
        usual = due_us + self.lateness_us
        window = self.at(due_us)
        return usual if window is None else max(usual, window.end_us)

    def seen_by_us(self, written_us: int) -> int:
        """Return by when an operator must have seen what was written then."""
        return self.latest_us(written_us)

    def overlapping(self, first_us: int, last_us: int) -> int:
        """Return how many faults and stalls disturbed at some time between these two."""
        return sum(
            1
            for one in self._disturbing
            if one.begin_us <= last_us and one.end_us + self.recovery_us >= first_us
        )

    def keeps_answers(self, instant_us: int) -> bool:
        """Whether the receiver took requests at that instant without answering them."""
        return any(
            one.kind in (FaultKind.RECEIVER_CUTS, FaultKind.RECEIVER_HANGS)
            and one.begin_us <= instant_us <= one.end_us
            for one in self.faults
        )

    def ongoing(self, first_us: int, last_us: int) -> bool:
        """Whether a fault or stall was going on between these two, without its recovery."""
        return any(one.begin_us <= last_us and one.end_us >= first_us for one in self._disturbing)

    def early_us(self, instant_us: int) -> int:
        """Return by how much a slot that ran then may have been early."""
        is_wrong = any(
            one.kind == FaultKind.WRONG_CLOCK
            and one.begin_us <= instant_us <= one.end_us + self.recovery_us
            for one in self.faults
        )
        return CLOCK_TOLERANCE_US if is_wrong else 0

    def forgot_between(self, first_us: int, last_us: int) -> Fault | None:
        """Return a fault between these two that made Redis lose data, if any."""
        return next(
            (one for one in self._forgetting if first_us <= one.end_us and one.begin_us <= last_us),
            None,
        )

    def held_up_jobs(self, first_us: int, last_us: int) -> bool:
        """Whether a worker, or its way to the API server, was disturbed between these two."""
        return any(
            one.kind in _HOLDING_UP_JOBS and first_us <= one.end_us and one.begin_us <= last_us
            for one in self.faults
        )

    def remembered_us(self, seen_us: int) -> int:
        """Return from when on a fact seen then is safe: until then a server may forget it again."""
        for one in self._forgetting:
            if one.begin_us - FORGOTTEN_US <= seen_us <= one.end_us + self.recovery_us:
                seen_us = max(seen_us, one.end_us + self.recovery_us)
        return seen_us

    @property
    def forgot(self) -> bool:
        """Whether Redis lost any data in the whole run."""
        return bool(self._forgetting)


def _merged(found: Iterable[Window]) -> list[Window]:
    merged: list[Window] = []
    for one in sorted(found, key=lambda window: window.begin_us):
        if merged and one.begin_us <= merged[-1].end_us:
            merged[-1] = Window(merged[-1].begin_us, max(merged[-1].end_us, one.end_us))
        else:
            merged.append(one)
    return merged
