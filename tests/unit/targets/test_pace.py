"""What is put off comes back in order, no faster than turns come free would allow twice over."""

from __future__ import annotations

import pytest

from duepoint.targets import pace


def freeing(every: float, turns: int = 200) -> tuple[pace.Pace, float]:
    """A pace whose turns come free at that interval, and the time of the last."""
    known = pace.Pace(0.0)
    for number in range(1, turns + 1):
        known.note_free(number * every, is_scarce=True)
    return known, turns * every


def test_those_that_were_put_off_come_back_in_their_order():
    known, now = freeing(0.02)
    waits = [known.put_off(now) for _ in range(100)]
    assert waits == sorted(waits)
    assert waits[0] >= pace.LEAST_SECONDS
    assert waits[-1] <= pace.MOST_SECONDS


def test_a_turn_that_comes_free_does_not_bring_the_next_ones_back_before_the_others():
    known, now = freeing(0.02)
    latest = max(now + known.put_off(now) for _ in range(100))
    known.note_free(now + 0.02, is_scarce=True)
    assert now + 0.02 + known.put_off(now + 0.02) > latest


@pytest.mark.parametrize("every", [0.05, 0.25])
def test_about_twice_as_many_come_back_as_find_a_turn(every):
    known, now = freeing(every)
    backs = sorted(known.put_off(now) for _ in range(50))
    rate = (len(backs) - 1) / (backs[-1] - backs[0])
    assert rate == pytest.approx(2 / every, rel=0.05)


def test_whatever_waits_comes_back_within_the_bound():
    known, now = freeing(1.0)
    waits = [known.put_off(now) for _ in range(1_000)]
    assert max(waits) <= pace.MOST_SECONDS
    assert min(waits) >= pace.LEAST_SECONDS
