"""Backoff arithmetic and the end of trying.

Full jitter over a doubling ceiling (M. Brooker, "Exponential Backoff And Jitter"): the wait is
uniform in [0, min(most, first * 2^(attempt-1))], so that many deliveries to one receiver that
comes back do not arrive together. Pure: the random fraction is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

#: No retry is sooner than this, whatever the dice say.
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
    after_us: int | None = None,
) -> int | None:
    """When to try again, or None where it is time to give up.

    Args:
        limits: the target's.
        attempts_made: attempts so far, at least 1.
        now_us: time of the failure.
        fraction: uniform in [0, 1).
        after_us: what the other side asked for; it is a floor.
    """
    if attempts_made >= limits.max_attempts:
        return None
    ceiling_us = min(limits.most_us, limits.first_us << min(attempts_made - 1, 40))
    wait_us = max(int(ceiling_us * fraction), LEAST_WAIT_US, after_us or 0)
    due_us = now_us + wait_us
    return due_us if due_us < limits.give_up_us else None
