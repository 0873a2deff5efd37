"""Slots of manual runs, divided at any place."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from duepoint.schedules import manualruns
from tests.unit.schedules.test_manualruns import HOUR, NOW, a_backfill, all_of, line


@given(
    begin=st.integers(-50, 0), length=st.integers(1, 60), taken=st.integers(0, 60),
    newest_first=st.booleans(),
)  # fmt: skip
def test_a_cursor_divides_a_range_without_loss_or_doubling(begin, length, taken, newest_first):
    start = NOW + begin * HOUR - 7
    wanted = a_backfill(start, start + length * HOUR, newest_first=newest_first)
    whole = all_of(wanted, line())
    first = list(itertools.islice(iter(whole), taken))
    cursor = first[-1] if first else None
    assert first + all_of(wanted, line(), cursor) == whole
    assert whole == sorted(whole, reverse=newest_first)
    assert manualruns.left(wanted, line()) == len(whole)
    assert manualruns.left(wanted, line(), cursor) == len(whole) - len(first)
    for slot_us in whole:
        is_after = manualruns.is_after(wanted, slot_us, cursor)
        assert is_after == (slot_us not in first)
