"""The outcomes of an attempt to fire a target; the worker decides what follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from duepoint.schedules.conditions import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The target accepted the slot.

    Attributes:
        label: the label of the metric, here and in the classes below.
        running: whether the work goes on elsewhere (in a Job) and ends later.
        job_name: the name of the Job, if it is one.
        may_come_again: whether an unanswered request for the Job may be in flight.
    """

    label: ClassVar[str] = "delivered"
    accepted_us: int
    running: bool = False
    job_name: str = ""
    http_status: int | None = None
    message: str = ""
    may_come_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The target did not accept the slot, but a retry may help.

    Attributes:
        after_us: the shortest wait that the receiver asks for (Retry-After), as a duration; None
            leaves it to the backoff.
        started: whether the slot counts as started by this attempt (a Job's slot starts with it).
        counted: whether this counts as an attempt; if no time was left, there was none.
        unanswered: whether a request to create a Job was sent that may still be carried out.
    """

    label: ClassVar[str] = "retry"
    reason: Reason
    message: str
    after_us: int | None = None
    http_status: int | None = None
    started: bool = True
    counted: bool = True
    unanswered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The target did not accept the slot, and a retry would not help."""

    label: ClassVar[str] = "rejected"
    reason: Reason
    message: str
    http_status: int | None = None
    started: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The slot is not attempted at all, and ends without a run."""

    label: ClassVar[str] = "skipped"
    reason: Reason
    message: str
    http_status: int | None = None
    started: bool = False


Outcome = Delivered | Retry | Rejected | Skip
