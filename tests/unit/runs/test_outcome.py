"""Backoff: jittered, doubling, bounded, and with an end."""

from __future__ import annotations

from duepoint.runs import outcome

LIMITS = outcome.RetryLimits(
    first_us=5_000_000, most_us=900_000_000, max_attempts=20, give_up_us=86_400_000_000
)


def test_the_ceiling_doubles_until_the_most():
    waits = [
        outcome.next_try(LIMITS, attempts_made=number, now_us=0, fraction=0.999999999)
        for number in range(1, 12)
    ]
    assert waits[1] > 1.9 * waits[0]
    assert waits[-1] <= LIMITS.most_us


def test_a_huge_number_of_attempts_does_not_overflow():
    wide = outcome.RetryLimits(
        first_us=1_000_000, most_us=60_000_000, max_attempts=10**6, give_up_us=2**52
    )
    due = outcome.next_try(wide, attempts_made=100_000, now_us=0, fraction=0.5)
    assert due == 30_000_000


def test_no_wait_is_longer_than_it_has_been_tried_for():
    """Seven attempts may lie within 13 s of an outage; a ceiling of a minute says nothing then."""
    limits = outcome.RetryLimits(
        first_us=1_000_000, most_us=60_000_000, max_attempts=10**6, give_up_us=2**52
    )
    for tried_for_us, most_us in [
        (0, 1_000_000),
        (13_000_000, 13_000_000),
        (600_000_000, 60_000_000),
    ]:
        due = outcome.next_try(
            limits, attempts_made=8, now_us=0, fraction=0.999999999, tried_for_us=tried_for_us
        )
        assert most_us * 0.999 < due <= most_us
