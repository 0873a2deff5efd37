"""What a target may answer when it is fired, and when a failed attempt is tried again.

The target says what happened; ``next_try`` and ``run`` decide what follows.

The backoff has full jitter over a doubling ceiling (M. Brooker, "Exponential Backoff And Jitter"):
the wait is uniform in [0, min(most, first * 2^(attempt-1))], so that many deliveries to one
receiver that comes back do not arrive together. The random fraction is an argument.

A request to make a Job that got no answer may still be carried out: the API server goes on with
what it has read, even after its client has gone, until its own time is over
(``--request-timeout``, 60 s unless set otherwise). While the Job exists, its name refuses a late
request; once history has deleted it, nothing does. So the code that deletes a Job asks
``may_still_come``. Pure.
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
        counted: whether this was an attempt at all; without time left there was none.
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
class Skip:
    """Not tried, and not to be: the slot ends without a run."""

    reason: Reason
    message: str
    http_status: int | None = None
    started: bool = False


Outcome = Delivered | Retry | Rejected | Skip


# -- the next attempt ----------------------------------------------------------------------------

#: No retry is sooner than this.
LEAST_WAIT_US = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """How often and how long to try.

    Attributes:
        first_us, most_us: ceiling of the first wait, and of any.
        max_attempts: attempts in all, the first included.
        give_up_us: instant from which no attempt starts.
    """

    first_us: int
    most_us: int
    max_attempts: int
    give_up_us: int


def next_try(
    limits: RetryLimits,
    *,
    attempts_made: int,
    now_us: int,
    fraction: float,
    tried_for_us: int | None = None,
    after_us: int | None = None,
) -> int | None:
    """When to try again, or None where it is time to give up.

    Args:
        limits: the target's.
        attempts_made: attempts so far, at least 1.
        now_us: time of the failure.
        fraction: uniform in [0, 1).
        tried_for_us: time since the first attempt. No wait but the first is longer, so that what an
            outage held up is over at most as long after it as it lasted. None = waits double
            however large their sum is.
        after_us: what the other side asked for; it is a floor.
    """
    if attempts_made >= limits.max_attempts:
        return None
    ceiling_us = min(limits.most_us, limits.first_us << min(attempts_made - 1, 40))
    if tried_for_us is not None:  # of several waits many are short: attempts say little about time
        ceiling_us = min(ceiling_us, max(limits.first_us, tried_for_us))
    wait_us = max(int(ceiling_us * fraction), LEAST_WAIT_US, after_us or 0)
    due_us = now_us + wait_us
    return due_us if due_us < limits.give_up_us else None


#: The API server's limit, and a margin for a connection that holds back what was sent.
LATE_US = 70_000_000


def may_still_come(sent_by_us: int, now_us: int) -> bool:
    """Whether a request that was sent by then, 0 = none was, may be carried out after now."""
    return sent_by_us > 0 and now_us < sent_by_us + LATE_US
