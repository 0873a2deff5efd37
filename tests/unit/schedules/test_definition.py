"""Rules and what stands for them; the identity of a definition."""

from __future__ import annotations

import msgspec

from duepoint.schedules import rule as rules
from tests.support.builders import a_definition, a_rule


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
