"""Definitions come back as they were stored, and other bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint.schedules import definition, headings
from duepoint.schedules import rule as rules
from tests.support.builders import a_definition

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
    packed = definition.unpack(
        definition.pack(original, namespace=namespace, target=target, rule=rule)
    )
    assert (packed.namespace, packed.target) == (namespace, target)
    assert packed.rule == (rules.text(original.rule) if rule is None else rule)
    assert packed.timing_version == original.timing_version
    restored = definition.resolve(
        packed, namespace=original.namespace, rule=original.rule, target=original.target
    )
    assert restored == original


@given(st.binary(max_size=120))
def test_any_other_bytes_are_refused_without_another_error(record):
    try:
        definition.unpack(record)
    except definition.UnknownFormat:
        return


@given(
    uid=st.one_of(st.uuids().map(str), st.text(min_size=1, max_size=40)),
    name=st.text(min_size=1, max_size=52),
    generation=sizes,
    collision=st.integers(0, 300),
    most=st.sampled_from([None, 3]),
    state=st.sampled_from(definition.State),
    numbers=st.tuples(sizes, sizes, st.one_of(st.none(), sizes)),
    fingerprint=st.binary(min_size=4, max_size=4),
)
def test_a_heading_is_that_of_the_whole_record(
    uid, name, generation, collision, most, state, numbers, fingerprint
):
    namespace, target, rule = numbers
    timing = rules.Timing(schedules=("0 9 * * *",), max_runs=most)
    original = a_definition(
        uid=uid,
        name=name,
        generation=generation,
        collision=collision,
        state=state,
        rule=rules.Rule(timing=timing),
        fingerprint=fingerprint,
    )
    record = definition.pack(original, namespace=namespace, target=target, rule=rule)
    assert headings.read(record) == (uid, generation, collision, namespace, name, fingerprint)


@given(st.binary(max_size=120), st.binary(max_size=40))
def test_bytes_that_are_no_record_have_no_heading(head, tail):
    usual = definition.pack(a_definition(), namespace=1, target=2, rule=3)
    for data in (head, usual + tail, usual[: len(head)] + tail):
        try:
            packed = definition.unpack(data)
        except definition.UnknownFormat:
            with pytest.raises(definition.UnknownFormat):
                headings.read(data)
        else:
            assert headings.read(data).name == packed.name
