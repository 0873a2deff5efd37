"""Periods and one-shots: arithmetic from an anchor, and a single instant."""

import pytest

from duepoint.expressions import compile_expression
from tests.unit.expressions import moments

YEAR_US = 365 * 86_400 * 1_000_000
ANCHOR = moments.us("2026-03-01T00:00:00.250Z")


def test_with_a_job_template_the_anchor_is_cut_to_the_second():
    expression = compile_expression("@every 1h", anchor_us=ANCHOR, whole_seconds=True)
    assert moments.utc(expression.next_after(ANCHOR)) == "2026-03-01T01:00:00Z"


def test_a_period_ends_with_the_calendar_of_the_queue():
    expression = compile_expression("@every 20000d", anchor_us=ANCHOR)
    first_us = expression.next_after(ANCHOR)
    assert first_us == ANCHOR + 20_000 * 86_400_000_000
    assert expression.next_after(first_us) is None
    assert expression.count_between(ANCHOR, 1 << 60) == 1
    assert expression.previous_before(1 << 60) == first_us


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("@at 2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z"),
        ("@at 2026-12-24t18:00:00.125z", "2026-12-24T18:00:00.125000Z"),
        ("@at 2026-12-24T18:00:00-03:30", "2026-12-24T21:30:00Z"),
        ("@at  1798135200", "2026-12-24T18:00:00Z"),
        ("@at 0", "1970-01-01T00:00:00Z"),
    ],
)
def test_a_one_shot_has_one_slot(text, slot):
    expression, slot_us = compile_expression(text), moments.us(slot)
    assert expression.next_after(slot_us - 1) == slot_us
    assert expression.next_after(slot_us) is None
    assert expression.previous_before(slot_us + 1) == slot_us
    assert expression.previous_before(slot_us) is None
    assert expression.count_between(slot_us - 1, slot_us) == 1
    assert expression.count_between(slot_us, slot_us + YEAR_US) == 0
