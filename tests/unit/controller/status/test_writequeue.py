"""The distance between two writes of one status."""

from __future__ import annotations

from duepoint.controller.status import writequeue


def written(times):
    made = writequeue.WriteInterval()
    for now in times:
        assert made.rest(now) == 0, f"not yet at {now}"
        made = made.written(now)
    return made


def test_the_first_news_is_written_at_once():
    assert writequeue.WriteInterval().rest(0.0) == 0


def test_calm_news_follows_within_two_seconds():
    assert written([100.0, 107.0, 130.0]).rest(130.0) == writequeue.STALENESS_SECONDS


def test_a_schedule_that_never_pauses_is_written_every_ten_seconds():
    made = writequeue.WriteInterval()
    writes, now = [], 0.0
    while now < 60:
        now += made.rest(now)
        made = made.written(now)
        writes.append(now)
        now += 0.1  # there is news again
    assert writes[:3] == [0.0, 2.0, 6.0]
    assert writes[-1] - writes[-2] == writequeue.STEADY_SECONDS


def test_a_pause_makes_it_quick_again():
    made = written([0.0, 2.0, 6.0, 14.0])
    made = made.written(40.0)
    assert made.rest(40.0) == writequeue.STALENESS_SECONDS


def test_another_result_is_told_as_soon_as_the_first():
    made = written([0.0, 2.0, 6.0, 14.0])
    assert made.rest(14.0) == writequeue.STEADY_SECONDS
    made = made.hurried()
    assert made.rest(14.0) == writequeue.STALENESS_SECONDS
