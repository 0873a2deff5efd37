"""Late, missed, caught up: what a claimed chain leads to."""

from __future__ import annotations

import pytest

from duepoint.schedules import policies, slots
from duepoint.schedules.conditions import Reason
from tests.support.builders import CREATED_US, a_rule, at

SECOND = 1_000_000


def decide(rule, chain: str, now: str) -> policies.Decision:
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    return policies.decide(timeline, rule.policy, chain_due_us=at(chain), now_us=at(now))


def ran(decision) -> list[int]:
    return [one.slot_us for one in decision.run]


def missed(decision) -> dict[Reason, int]:
    return {group.reason: group.count for group in decision.missed}


@pytest.mark.parametrize(
    ("policy", "expected", "reasons"),
    [
        ({"catch_up_policy": "Latest"}, ["12:20"], {Reason.CATCH_UP_POLICY: 4}),
        ({"catch_up_policy": "All"}, ["12:00", "12:05", "12:10", "12:15", "12:20"], {}),
        (
            {"catch_up_policy": "All", "catch_up_limit": 2},
            ["12:15", "12:20"],
            {Reason.CATCH_UP_POLICY: 3},
        ),
        ({"catch_up_policy": "None"}, [], {Reason.CATCH_UP_POLICY: 5}),
        (
            {"catch_up_policy": "All", "starting_deadline_seconds": 600},
            ["12:15", "12:20"],
            {Reason.DEADLINE_EXCEEDED: 3},
        ),
        (
            {"catch_up_policy": "Latest", "starting_deadline_seconds": 600},
            ["12:20"],
            {Reason.DEADLINE_EXCEEDED: 3, Reason.CATCH_UP_POLICY: 1},
        ),
        ({"starting_deadline_seconds": 60}, [], {Reason.DEADLINE_EXCEEDED: 5}),
    ],
)
def test_of_five_overdue_slots_the_policy_chooses(policy, expected, reasons):
    decision = decide(a_rule("*/5 * * * *", policy=policy), "2026-03-01 12:00", "2026-03-01 12:23")
    assert ran(decision) == [at(f"2026-03-01 {time}") for time in expected]
    assert missed(decision) == reasons
    assert decision.following.slot_us == at("2026-03-01 12:25")


def test_a_deadline_of_zero_means_on_time_with_a_second_of_grace():
    rule = a_rule("*/5 * * * *", policy={"starting_deadline_seconds": 0})
    assert ran(decide(rule, "2026-03-01 12:00", "2026-03-01 12:00:00.900"))
    late = decide(rule, "2026-03-01 12:00", "2026-03-01 12:00:01.100")
    assert missed(late) == {Reason.DEADLINE_EXCEEDED: 1}


def test_uneven_schedules_find_their_newest_missed_slot():
    # CronJob estimates from the first gap and finds nothing here.
    decision = decide(a_rule("0 9,10 * * *"), "2026-03-02 09:00", "2026-03-03 18:00")
    assert ran(decision) == [at("2026-03-03 10:00")]
    assert missed(decision) == {Reason.CATCH_UP_POLICY: 3}


def test_jitter_makes_a_slot_due_later_and_never_early():
    rule = a_rule("*/5 * * * *", jitter_ms=120_000)
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    due = timeline.due_slot(at("2026-03-01 12:00"))
    assert 0 <= due.due_us - due.slot_us < 120_000_000
    before = policies.decide(timeline, rule.policy, chain_due_us=due.due_us, now_us=due.due_us)
    assert ran(before) == [at("2026-03-01 12:00")]
    assert timeline.newest_due(due.due_us - 1) == at("2026-03-01 11:55")


@pytest.mark.parametrize(
    ("policy", "last", "reason"),
    [
        ({"starting_deadline_seconds": 60}, "12:01:00", Reason.DEADLINE_EXCEEDED),
        ({"catch_up_policy": "None"}, "12:00:10", Reason.CATCH_UP_POLICY),
    ],
)
def test_a_slot_runs_until_the_last_moment_and_is_missed_after_it(policy, last, reason):
    rule, slot = a_rule("*/5 * * * *", policy=policy), "2026-03-01 12:00"
    for later, expected in (("", {}), (".000001", {reason: 1})):
        now = f"2026-03-01 {last}{later}"
        decision = decide(rule, slot, now)
        assert (missed(decision), ran(decision)) == (expected, [] if expected else [at(slot)])
        assert policies.had_passed(at(slot), rule.policy, at(now)) is bool(expected)


def test_a_deadline_counts_from_the_due_and_not_from_the_slot():
    rule = a_rule("*/5 * * * *", jitter_ms=240_000, policy={"starting_deadline_seconds": 1_200})
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    oldest = timeline.due_slot(at("2026-03-01 12:00"))
    assert oldest.due_us > oldest.slot_us
    first = timeline.previous_before(oldest.slot_us)
    chain_us = timeline.due_slot(first).due_us
    for late_us, too_old in ((0, 1), (1, 2)):
        now_us = oldest.due_us + 1_200 * SECOND + late_us
        decision = policies.decide(timeline, rule.policy, chain_due_us=chain_us, now_us=now_us)
        assert missed(decision)[Reason.DEADLINE_EXCEEDED] == too_old


@pytest.mark.parametrize("schedule", ["@every 1s", "*/5 * * * *", "0 9-17 * * 1-5", "@hourly"])
@pytest.mark.parametrize(
    "policy",
    [
        {"catch_up_policy": "All"},
        {"catch_up_policy": "All", "catch_up_limit": 5},
        {"catch_up_policy": "All", "starting_deadline_seconds": 600},
        {"catch_up_policy": "Latest"},
        {"catch_up_policy": "None"},
    ],
)
@pytest.mark.parametrize("seconds", [0, 1, 2, 5, 9, 70, 1_300, 9_000, 200_000])
def test_the_oldest_slots_are_those_of_the_whole_decision(schedule, policy, seconds):
    rule = a_rule(schedule, policy=policy)
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    first = timeline.next_after(at("2026-03-02 12:00:00"))
    asked = {"chain_due_us": first.due_us, "now_us": first.due_us + seconds * SECOND}
    whole = policies.decide(timeline, rule.policy, **asked)
    for most in (1, 3, 1_000):
        found = policies.decide(timeline, rule.policy, **asked, most=most)
        assert found.run == whole.run[:most]
        assert found.missed == whole.missed
        later = [slots.DueSlot(one.slot_us, one.due_us) for one in whole.run[most:]]
        assert found.following == [*later, whole.following][0]
