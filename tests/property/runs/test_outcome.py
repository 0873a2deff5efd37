"""Waits before another attempt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.runs import outcome

LIMITS = outcome.RetryLimits(
    first_us=5_000_000, most_us=900_000_000, max_attempts=20, give_up_us=86_400_000_000
)


@given(st.integers(1, 19), st.floats(0, 0.999999))
def test_a_wait_is_within_its_ceiling(attempts, fraction):
    due = outcome.next_try(LIMITS, attempts_made=attempts, now_us=0, fraction=fraction)
    ceiling = min(LIMITS.most_us, LIMITS.first_us * 2 ** (attempts - 1))
    assert outcome.LEAST_WAIT_US <= due <= ceiling
