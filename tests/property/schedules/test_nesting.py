"""What is cut of texts that are nested in any way."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from duepoint.schedules import jsontext


def depth(value) -> int:
    """Levels of lists and objects."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def json_texts():
    """With brackets, quotes and backslashes in names and values."""
    words = st.text('{}[]\\"aé\n', max_size=6)
    values = st.recursive(
        st.none() | st.integers() | words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
        max_leaves=12,
    )
    return values.map(json.dumps)


@given(text=json_texts(), most=st.integers(2, 9))
def test_what_is_cut_is_exactly_what_is_deeper(text, most):
    cut = jsontext.clipped(text.encode(), most)
    assert depth(json.loads(cut)) == min(depth(json.loads(text)), most)
    if depth(json.loads(text)) <= most:
        assert cut == text.encode()
