"""What rows of members share from one write to the next, and how they are put together."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from duepoint.delayqueue.definitions import routing
from duepoint.delayqueue.members import rows
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import identity as setidentity

SECOND_US = 1_000_000
NOW_US = 1_795_000_000_250_000
OWNER = setidentity.SetIdentity(
    uid="5f0c2a94-31a7-4c52-9d0e-6a3b8e4c7d10", namespace="shop", name="reminders"
)


def a_rule(*schedules: str, **timing):
    return rules.Rule(timing=rules.Timing(schedules=schedules, **timing))


def test_a_rule_is_worked_out_again_when_its_slot_has_come():
    known, rule = rows.KnownRules(), a_rule("* * * * *")
    first = known.shared(rule, OWNER, NOW_US)
    assert first.due_us is not None
    assert known.shared(rule, OWNER, first.due_us - 1) is first
    second = known.shared(rule, OWNER, first.due_us)
    assert second.due_us == first.due_us + 60 * SECOND_US


def test_a_rule_is_worked_out_again_when_the_clock_goes_back():
    known, rule = rows.KnownRules(), a_rule("* * * * *")
    later = known.shared(rule, OWNER, NOW_US)
    earlier = known.shared(rule, OWNER, NOW_US - 3_600 * SECOND_US)
    assert later.due_us is not None
    assert earlier.due_us == later.due_us - 3_600 * SECOND_US


def test_another_rule_object_is_another_rule():
    known = rows.KnownRules()
    first = known.shared(a_rule("0 9 * * *"), OWNER, NOW_US)
    second = known.shared(a_rule("0 10 * * *"), OWNER, NOW_US)
    assert second.due_us == first.due_us + 3_600 * SECOND_US


@pytest.mark.parametrize(
    "rule",
    [
        a_rule("* * * * *"),
        a_rule("@every 7s"),
        a_rule("*/5 9-17 * * MON-FRI", time_zone="Europe/Rome"),
        a_rule("H * * * *"),
        a_rule("0 9 * * *", jitter_ms=5_000),
        a_rule("* * * * *", suspend=True),
        a_rule("* * * * *", suspend=True, suspend_until_us=NOW_US + 600 * SECOND_US),
        a_rule("* * * * *", end_us=NOW_US + 90 * SECOND_US),
        a_rule("* * * * *", end_us=NOW_US - SECOND_US),
        a_rule(*rules.ONCE),
    ],
    ids=[
        "every minute", "anchored", "zone", "hashed", "jitter", "suspended", "suspended until",
        "ending", "past", "once",
    ],
)  # fmt: skip
def test_what_is_kept_says_what_would_be_worked_out_now(rule):
    known = rows.KnownRules()
    for tenth in range(1_300):
        now_us = NOW_US + tenth * SECOND_US // 10
        kept, fresh = known.shared(rule, OWNER, now_us), rows.shared_by(rule, OWNER, now_us)
        assert (kept.state, kept.due_us, kept.kind, kept.inline, kept.is_alike) == (
            fresh.state, fresh.due_us, fresh.kind, fresh.inline, fresh.is_alike,
        )  # fmt: skip


def test_a_rule_without_a_slot_left_makes_completed_members():
    shared = rows.KnownRules().shared(a_rule("* * * * *", end_us=NOW_US - SECOND_US), OWNER, NOW_US)
    assert (shared.state, shared.due_us) == (definitions.State.COMPLETED, None)


class Row(NamedTuple):
    id: points.ScheduleId
    place: int


def test_rows_of_one_member_go_one_after_the_other():
    ids = [points.ScheduleId(name * 8) for name in (b"a", b"b", b"a", b"c", b"a", b"b")]
    listed = [Row(id_, place) for place, id_ in enumerate(ids)]
    assert [[row.place for row in wave] for wave in routing.waves(listed)] == [
        [0, 1, 3],
        [2, 5],
        [4],
    ]


def test_rows_of_different_members_go_together():
    listed = [Row(points.ScheduleId(bytes([n]) * 8), n) for n in range(3)]
    assert list(routing.waves(listed)) == [listed]
    assert list(routing.waves([])) == []
