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


@pytest.mark.parametrize("every", [0.005, 0.01, 0.05, 0.25])
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


@pytest.mark.parametrize("stood", [60.0, 150.0, 290.0, 298.0, 300.0, 7_200.0])
def test_where_nothing_moves_they_do_not_come_back_together(stood):
    known, now = freeing(0.02)
    waits = [known.put_off(now + stood) for _ in range(300)]
    assert max(waits) <= pace.MOST_SECONDS
    in_the_first_second = sum(wait < 1.0 + pace.LEAST_SECONDS for wait in waits)
    assert in_the_first_second <= 30  # of thirty seconds


@pytest.mark.parametrize(
    ("every", "waiting"), [(0.0012, 224), (0.004, 224), (0.03, 20)], ids=["fast", "usual", "slow"]
)
def test_while_turns_keep_coming_free_they_are_waited_for(every, waiting):
    """A worker has 256 places; that many behind 32 turns is a burst, and no receiver that hangs."""
    known, now = freeing(every)
    patience = known.patience(waiting, now)
    assert patience >= max(pace.PATIENCE_SECONDS, (waiting + 1) * every)
    assert known.patience(waiting, now + pace.PATIENCE_SECONDS + 0.01) == 0.0


@pytest.mark.parametrize(("every", "waiting"), [(0.03, 40), (0.25, 4)])
def test_what_would_wait_for_longer_than_a_second_is_put_off(every, waiting):
    known, now = freeing(every)
    assert known.patience(waiting, now) == 0.0


def test_what_one_namespace_has_put_off_does_not_hold_up_another():
    known, now = freeing(0.25)
    assert max(known.put_off(now, "flood") for _ in range(200)) > 20
    assert known.put_off(now, "quiet") == pytest.approx(pace.LEAST_SECONDS)
