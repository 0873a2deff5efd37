"""Several schedules as one, and a start and an end around them."""

from random import Random

import pytest

from duepoint.expressions import Overlap, compile_expression, merged, windowed
from tests.property.expressions import generators
from tests.unit.expressions import moments, stopwatch

NEW_YORK = "America/New_York"
YEAR_US = 365 * 86_400 * 1_000_000


def test_coinciding_times_count_once():
    expression = merged([compile_expression(text) for text in ("0 * * * *", "*/30 * * * *")])
    found = moments.between(expression, "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z")
    assert [slot[11:16] for slot in found] == ["00:30", "01:00", "01:30"]


def test_the_previous_slot_is_the_nearest_of_all():
    expression = merged([compile_expression(text) for text in ("0 9 * * *", "@every 7h")])
    noon = moments.us("2026-05-05T12:00:00Z")
    previous_us = expression.previous_before(noon)
    assert previous_us == max(
        compile_expression(text).previous_before(noon) for text in ("0 9 * * *", "@every 7h")
    )


def test_one_alone_is_itself_and_none_is_an_error():
    only = compile_expression("0 * * * *")
    assert merged([only, only]) is only
    with pytest.raises(ValueError, match="no expression"):
        merged([])


@pytest.mark.parametrize("seed", range(generators.samples(12)))
def test_the_count_of_a_union_is_what_walking_it_gives(seed):
    rng = Random(seed)
    zone = rng.choice(("Etc/UTC", NEW_YORK, "Australia/Lord_Howe"))
    members = []
    for _ in range(rng.randint(2, 6)):
        kind = rng.random()
        anchor_us = rng.choice((0, 7_000_000, 12_345_678))
        if kind < 0.15:
            text = f"@every {rng.choice((90, 120, 77, 240))}m"
        elif kind < 0.2:
            text = "@at 2026-03-08T10:00:00Z"
        else:
            text = generators.near_changes(rng, special=True).text
        members.append(
            compile_expression(
                text, time_zone=zone, anchor_us=anchor_us, overlap=rng.choice(list(Overlap))
            )
        )
    expression = merged(members)
    start = moments.us("2026-03-06T00:00:00Z") + rng.randint(0, 10**12)
    end = start + rng.randint(1, 5 * 10**11)
    walked, at_us = [], start
    while (at_us := expression.next_after(at_us)) is not None and at_us <= end:
        walked.append(at_us)
    assert expression.count_between(start, end) == len(walked)
    back, at_us = [], end + 1
    while (at_us := expression.previous_before(at_us)) is not None and at_us > start:
        back.append(at_us)
    assert back[::-1] == walked


def test_a_year_of_busy_schedules_is_counted_without_walking_it():
    texts = ("* * * * * *", "*/2 * * * * *", "*/7 * * * *", "0 9 * * 1-5")
    expression = merged([compile_expression(text, time_zone=NEW_YORK) for text in texts])
    start = moments.us("2026-01-01T00:00:00Z")
    with stopwatch.cpu_seconds() as passed:
        assert expression.count_between(start, start + YEAR_US) == 365 * 86_400
        assert passed() <= 1


def test_periods_that_repeat_a_shorter_one_cost_nothing():
    expression = merged([compile_expression(f"@every {n}s") for n in (1, 2, 3, 60)])
    with stopwatch.cpu_seconds() as passed:
        assert expression.count_between(0, YEAR_US) == 365 * 86_400
        assert passed() <= 0.01


def test_a_window_includes_its_start_and_excludes_its_end():
    start, end = moments.us("2026-05-05T12:00:00Z"), moments.us("2026-05-05T15:00:00Z")
    expression = windowed(compile_expression("0 * * * *"), start_us=start, end_us=end)
    found = moments.between(expression, "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z")
    assert [slot[11:13] for slot in found] == ["12", "13", "14"]
    assert expression.count_between(0, 1 << 52) == 3
    assert expression.count_between(start, end) == 2
    assert expression.previous_before(1 << 52) == moments.us("2026-05-05T14:00:00Z")
    assert expression.previous_before(start) is None
    assert expression.next_after(end) is None
    assert expression.next_after(moments.us("2026-05-05T14:00:00Z")) is None


def test_a_window_that_is_empty_or_over_has_no_slot():
    hourly = compile_expression("0 * * * *")
    empty = windowed(hourly, start_us=10**15, end_us=10**15)
    assert empty.next_after(0) is None
    assert empty.previous_before(1 << 52) is None
    assert empty.count_between(0, 1 << 52) == 0


def test_open_ends_do_not_wrap_anything():
    hourly = compile_expression("0 * * * *")
    assert windowed(hourly, start_us=None, end_us=None) is hourly
    from_then_on = windowed(hourly, start_us=10**15, end_us=None)
    assert from_then_on.next_after(0) >= 10**15
    until_then = windowed(hourly, start_us=None, end_us=10**15)
    assert until_then.previous_before(1 << 52) < 10**15
