"""What rows of members share from one write to the next, and how they are put together."""

from __future__ import annotations

import pytest

from duepoint.delayqueue.members import rows
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules import rule as rules

SECOND_US = 1_000_000
NOW_US = 1_795_000_000_250_000
OWNER = points.SetIdentity(
    uid="5f0c2a94-31a7-4c52-9d0e-6a3b8e4c7d10", namespace="shop", name="reminders"
)


def a_rule(*schedules: str, **timing):
    return rules.Rule(timing=rules.Timing(schedules=schedules, **timing))


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
