"""Texts of a status: open slots and instants, written and read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.controller.status import texts

S = 1_000_000
SLOTS = st.lists(st.integers(1, 4_102_444_800 * S), unique=True, max_size=300).map(sorted)


@given(SLOTS)
def test_slots_are_read_back_as_they_were(slots_us):
    assert texts.parse_slots(texts.slots_text(slots_us)) == tuple(slots_us)


@given(st.text() | st.none() | st.integers())
def test_a_text_that_is_not_ours_holds_no_slots(text):
    assert isinstance(texts.parse_slots(text), tuple)
