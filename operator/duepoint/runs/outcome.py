"""The outcomes of an attempt to fire a target, and the backoff between attempts.

The target returns an outcome; ``next_try`` and ``run`` decide what follows.

The backoff has full jitter over a doubling ceiling (M. Brooker, "Exponential Backoff And Jitter"):
the wait is uniform in [0, min(most, first * 2^(attempt-1))], so that many deliveries to a receiver
that has just recovered do not arrive together. The random fraction is an argument.

A request to create a Job that got no answer may still be carried out: even after its client has
gone, the API server continues with what it has read until its own timeout (``--request-timeout``,
60 s by default). While the Job exists, its name makes a late request fail; after history has
deleted it, nothing does. So the code that deletes a Job asks ``may_still_come``. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint.schedules.conditions import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The target accepted the slot.

    Attributes:
        running: whether the work goes on elsewhere (in a Job) and ends later.
        job_name: the name of the Job, if it is one.
        may_come_again: whether an unanswered request for the Job may be in flight.
    """

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

    reason: Reason
    message: str
    http_status: int | None = None
    started: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The slot is not attempted at all, and ends without a run."""

    reason: Reason
    message: str
    http_status: int | None = None
    started: bool = False


Outcome = Delivered | Retry | Rejected | Skip


# -- the next attempt ----------------------------------------------------------------------------

#: The shortest wait before a retry.
LEAST_WAIT_US = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """The limits of retries.

    Attributes:
        first_us, most_us: the ceiling of the first wait, and of any wait.
        max_attempts: the number of attempts in all, including the first.
        give_up_us: the instant from which no attempt may start.
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
    """Return when to try again; None = give up.

    Args:
        limits: the target's limits.
        attempts_made: attempts so far, at least 1.
        now_us: the time of the failure.
        fraction: uniform in [0, 1).
        tried_for_us: the time since the first attempt. No wait but the first is longer than this,
            so a delivery that an outage held up is retried within as long again as the outage
            lasted. None = waits double without this limit.
        after_us: the wait that the receiver asked for, as a minimum.
    """
    if attempts_made >= limits.max_attempts:
        return None
    ceiling_us = min(limits.most_us, limits.first_us << min(attempts_made - 1, 40))
    if tried_for_us is not None:  # jitter makes many waits short: attempts say little about time
        ceiling_us = min(ceiling_us, max(limits.first_us, tried_for_us))
    wait_us = max(int(ceiling_us * fraction), LEAST_WAIT_US, after_us or 0)
    due_us = now_us + wait_us
    return due_us if due_us < limits.give_up_us else None


#: The API server's timeout, and a margin for a connection that delays what was sent.
LATE_US = 70_000_000


def may_still_come(sent_by_us: int, now_us: int) -> bool:
    """Whether a request sent no later than ``sent_by_us`` (0 = none) may still be carried out."""
    return sent_by_us > 0 and now_us < sent_by_us + LATE_US
