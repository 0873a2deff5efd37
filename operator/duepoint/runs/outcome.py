"""What a target may answer when it is fired.

The target says what happened; ``retries`` and ``run`` decide what follows. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint.schedules.conditions import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The target accepted the slot.

    Attributes:
        running: the work goes on elsewhere (a Job) and ends later.
        job_name: name of the Job, for Jobs.
        may_come_again: a request for the Job may be under way that got no answer.
    """

    accepted_us: int
    running: bool = False
    job_name: str = ""
    http_status: int | None = None
    message: str = ""
    may_come_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Not accepted, and worth trying again.

    Attributes:
        after_us: the earliest time the other side wants to hear of it again (Retry-After), as a
            duration; None leaves it to the backoff.
        started: whether the slot counts as started by this attempt (a Job starts with its Job).
        counted: whether this was an attempt at all; one for which no time was left was none.
        unanswered: a request to make a Job was sent, and may be carried out all the same.
    """

    reason: Reason
    message: str
    after_us: int | None = None
    http_status: int | None = None
    started: bool = True
    counted: bool = True
    unanswered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Not accepted, and trying again would not help."""

    reason: Reason
    message: str
    http_status: int | None = None
    started: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Not tried, and not to be: the slot ends without a run."""

    reason: Reason
    message: str
    http_status: int | None = None
    started: bool = False


Outcome = Delivered | Retry | Rejected | Skipped
