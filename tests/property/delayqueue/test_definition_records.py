"""Definitions come back as they were stored, and other bytes are refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.delayqueue.definitions import codec
from duepoint.schedules import definition
from duepoint.schedules import rule as rules
from tests.support.builders import a_definition, a_record

sizes = st.integers(0, 2**40)


@given(
    uid=st.one_of(st.uuids().map(str), st.text(min_size=1, max_size=40)),
    name=st.text(min_size=1, max_size=52),
    generation=sizes,
    state=st.sampled_from(definition.State),
    numbers=st.tuples(sizes, sizes, st.one_of(st.none(), sizes)),
    not_before_us=st.integers(0, 2**52),
)
def test_a_record_comes_back_as_it_was(uid, name, generation, state, numbers, not_before_us):
    namespace, target, rule = numbers
    original = a_definition(
        uid=uid, name=name, generation=generation, state=state, not_before_us=not_before_us
    )
    packed = codec.unpack(a_record(original, namespace=namespace, target=target, rule=rule))
    assert (packed.namespace, packed.target) == (namespace, target)
    assert packed.rule == (rules.text(original.rule) if rule is None else rule)
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
