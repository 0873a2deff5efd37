"""How a run ends whose Job was taken away before its end was seen: the same words everywhere.

All of these are failed runs, because the work did not come to its end as far as is known; only a
run whose Job Duepoint itself deleted in favour of a newer slot is none (``replacements``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from duepoint.runs.run import RunEvent
from duepoint.schedules.conditions import Reason

#: Told how the run of a Job ended that is gone, and since when that is known (monotonic); raises
#: TryLater.
TellGone = Callable[[RunEvent, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Gone:
    """Why a run ended without an end of its Job."""

    reason: Reason
    message: str


def deleted() -> Gone:
    """The Job was seen to go."""
    return Gone(Reason.DELETED, "the Job was deleted before it ended")


def lost() -> Gone:
    """The Job is not there; it may have ended before it went."""
    return Gone(Reason.DELETED, "the Job is gone, and its end was not seen")


def released() -> Gone:
    """The Job is there, and is a run of the Schedule no more."""
    told = "the Job was released: its owner reference or slot was removed, and its end is not seen"
    return Gone(Reason.RELEASED, told)
