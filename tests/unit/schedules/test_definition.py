"""The stored record: inverse, small, and careful about what it cannot read."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.schedules import definition
from duepoint.schedules import rule as rules
from tests.support.builders import a_definition, a_rule


def test_a_usual_record_stays_within_72_bytes():
    usual = a_definition(name="nightly-report-0123456789", generation=300)
    assert len(definition.pack(usual, namespace=1000, target=70_000, rule=2_000_000)) <= 72


def test_scripts_find_format_state_and_version_where_they_look_for_them():
    suspended = a_definition(state=definition.State.SUSPENDED)
    record = definition.pack(suspended, namespace=1, target=1, rule=1)
    assert record[0] == definition.FORMAT
    assert record[definition.STATE_OFFSET] == definition.State.SUSPENDED
    start = definition.VERSION_OFFSET
    assert record[start : start + 4] == suspended.timing_version


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_truncated_record_is_refused(cut):
    record = definition.pack(a_definition(), namespace=1, target=1, rule=1)
    with pytest.raises(definition.UnknownFormat):
        definition.unpack(record[:-cut])


def test_a_record_of_a_later_format_is_refused():
    record = definition.pack(a_definition(), namespace=1, target=1, rule=1)
    with pytest.raises(definition.UnknownFormat):
        definition.unpack(bytes([definition.FORMAT + 1]) + record[1:])


def test_equal_rules_have_equal_texts_and_come_back():
    one = a_rule("0 2 * * *", jitter_ms=30_000, policy={"catch_up": "All"})
    other = a_rule("0 2 * * *", jitter_ms=30_000, policy={"catch_up": "All"})
    assert rules.text(one) == rules.text(other)
    assert rules.parse(rules.text(one)) == one


def test_rules_with_instants_of_their_own_are_kept_out_of_the_shared_table():
    assert a_rule("@at 2027-01-01T00:00:00Z").is_private
    assert a_rule("@every 1m", start_us=5).is_private
    assert not a_rule("0 2 * * *").is_private


def test_the_identity_names_namespace_and_schedule():
    assert msgspec.structs.replace(a_definition(), namespace="a", name="b").identity == "a/b"
