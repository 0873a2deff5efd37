"""Backoff: jittered, doubling, bounded, and with an end."""

from __future__ import annotations

from duepoint.runs import outcome

LIMITS = outcome.RetryLimits(
    first_us=5_000_000, most_us=900_000_000, max_attempts=20, give_up_us=86_400_000_000
)


def test_the_last_attempt_is_the_last():
    assert outcome.next_try(LIMITS, attempts_made=20, now_us=0, fraction=0.5) is None


def test_nothing_starts_after_the_age_limit():
    late = LIMITS.give_up_us - 1_000
    assert outcome.next_try(LIMITS, attempts_made=1, now_us=late, fraction=0.9) is None
