"""Several schedules as one, and a start and an end around them."""

from random import Random

import pytest

from duepoint.expressions import Gap, Overlap, compile_expression, merged, windowed
from tests.property.expressions import generators
from tests.unit.expressions import moments

NEW_YORK = "America/New_York"


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


def some_members(rng, zone):
    """Two to six texts of all forms, in one zone, with coinciding times."""
    gap, overlap = rng.choice(list(Gap)), rng.choice(list(Overlap))
    anchor_us = rng.choice((0, 7_000_000, 12_345_678, moments.us("2026-03-07T01:00:00.500Z")))
    for _ in range(rng.randint(2, 6)):
        kind = rng.random()
        if kind < 0.3:
            text = f"@every {rng.choice(('90m', '120m', '77m', '13m500ms', '1800s', '37s', '9m'))}"
        elif kind < 0.4:
            text = f"@at 2026-03-08T{rng.choice(('07', '10'))}:00:00Z"
        elif kind < 0.5:
            text = rng.choice(("*/10 * * * * *", "0-58 0-22 * * *", "*/7 * * * *", "0,30 2 * * *"))
        else:
            text = generators.near_changes(rng, special=True).text
        yield compile_expression(
            text, time_zone=zone, anchor_us=anchor_us, gap=gap, overlap=overlap
        )


@pytest.mark.parametrize("seed", range(generators.samples(60)))
def test_the_count_of_a_union_is_what_walking_it_gives(seed):
    rng = Random(seed)
    zone = rng.choice(("Etc/UTC", NEW_YORK, "Australia/Lord_Howe", "America/Sao_Paulo"))
    expression = merged(list(some_members(rng, zone)))
    start = moments.us(rng.choice(("2026-03-06T00:00:00Z", "2026-10-30T00:00:00Z")))
    start += rng.randint(0, 10**12) // rng.choice((1, 10**6)) * rng.choice((1, 10**6))
    end = start + rng.randint(1, 10**11)
    walked, at_us = [], start
    while (at_us := expression.next_after(at_us)) is not None and at_us <= end:
        walked.append(at_us)
    assert expression.count_between(start, end) == len(walked)
    back, at_us = [], end + 1
    while (at_us := expression.previous_before(at_us)) is not None and at_us > start:
        back.append(at_us)
    assert back[::-1] == walked


def test_of_very_many_slots_shared_ones_may_count_more_than_once():
    expression = merged([compile_expression(text) for text in ("* * * * * *", "*/2 * * * * *")])
    start, half_day, year = moments.us("2026-01-01T00:00:00Z"), 43_200, 365 * 86_400
    assert expression.count_between(start, start + half_day * 1_000_000) == half_day
    assert year <= expression.count_between(start, start + year * 1_000_000) <= 1.5 * year


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
