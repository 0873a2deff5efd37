"""Definitions come back as they were stored, and other bytes are refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.delayqueue.definitions import codec
from duepoint.schedules import definition
from duepoint.schedules import rule as rules
from tests.support.builders import KIND, a_definition, a_record

sizes = st.integers(0, 2**32 - 1)


@given(
    uid=st.one_of(st.uuids().map(str), st.text(min_size=1, max_size=40)),
    name=st.text(min_size=1, max_size=52),
    generation=sizes,
    state=st.sampled_from(definition.State),
    is_inline=st.booleans(),
    not_before_us=st.integers(0, 2**52),
)
def test_a_record_comes_back_as_it_was(uid, name, generation, state, is_inline, not_before_us):
    original = a_definition(
        uid=uid, name=name, generation=generation, state=state, not_before_us=not_before_us
    )
    packed = codec.unpack(a_record(original, is_inline=is_inline))
    assert packed.kind == KIND
    assert packed.inline == (rules.text(original.rule) if is_inline else b"")
    assert packed.timing_version == original.timing_version
    restored = packed.resolved(
        namespace=original.namespace, rule=original.rule, target=original.target
    )
    assert restored == original


@given(st.binary(max_size=120))
def test_any_other_bytes_are_refused_without_another_error(record):
    try:
        codec.unpack(record)
    except codec.UnknownRecord:
        return
