"""Lengths of time, shown and read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.expressions import durations


@given(st.integers(0, 1 << 53))
def test_what_is_shown_is_read_as_the_same_length(us):
    assert durations.parse_duration_us(durations.format_duration(us)) == us
