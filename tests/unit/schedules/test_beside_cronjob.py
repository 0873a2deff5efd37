"""Where people come from CronJob: what is the same, and what was a complaint there and is not here.

Numbers such as k/k#63371 are issues of kubernetes/kubernetes. Pure: what the operator and the
worker decide, from the spec to the slots that run.
"""

from __future__ import annotations

import msgspec
import pytest

from duepoint.controller import plan
from duepoint.controller.status.published import Status
from duepoint.schedules import policies, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import State
from tests.support.builders import CREATED_US, a_rule, a_spec, at

HOUR_US = 3_600_000_000


def decide(rule, chain: str, now: str) -> policies.Decision:
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    return policies.decide(timeline, rule.policy, chain_due_us=at(chain), now_us=at(now))


def ran(decision) -> list[int]:
    return [one.slot_us for one in decision.run]


def planned(spec, stored=None, now="2026-03-01 15:02:00") -> plan.ArmingPlan:
    made = plan.decide(spec, stored, Status(), at(now), target="digest")
    assert made is not None
    return made


def edited(**fields):
    return msgspec.structs.replace(a_spec(**fields), generation=2)


def test_more_than_a_hundred_missed_slots_are_no_reason_to_stop_or_to_complain():
    # k/k#42649: over 100 missed start times, CronJob stopped for good, later only warned.
    decision = decide(a_rule("* * * * *"), "2026-03-01 12:00", "2026-04-01 12:00:30")
    assert ran(decision) == [at("2026-04-01 12:00")]
    assert [(each.reason, each.count) for each in decision.missed] == [
        (Reason.CATCH_UP_POLICY, 31 * 1_440)
    ]


@pytest.mark.parametrize("deadline", [0, 1, 5, 9])
def test_a_short_deadline_runs_what_is_on_time(deadline):
    # CronJob warns of deadlines below 10 s, and with 0 never runs anything.
    rule = a_rule("*/5 * * * *", policy={"starting_deadline_seconds": deadline})
    assert ran(decide(rule, "2026-03-01 12:00", "2026-03-01 12:00:00.400"))
    late = decide(rule, "2026-03-01 12:00", "2026-03-01 12:00:09.500")
    assert [each.reason for each in late.missed] == [Reason.DEADLINE_EXCEEDED]


def test_a_period_longer_than_its_deadline_goes_on():
    # In CronJob its base moves with the deadline, and the next run is for ever in the future.
    rule = a_rule("@every 1h", policy={"starting_deadline_seconds": 60})
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    due, fired = timeline.next_after(CREATED_US), 0
    for _ in range(5):
        decision = policies.decide(
            timeline, rule.policy, chain_due_us=due.due_us, now_us=due.due_us + 100_000
        )
        fired += len(decision.run)
        due = decision.following
    assert fired == 5
    assert due.slot_us == CREATED_US + 6 * HOUR_US


def test_an_edit_runs_nothing_of_the_past():
    # k/k#63371, #130838: the new schedule's last slot ran at the old one's next time.
    stored = planned(a_spec(schedule="0 16 * * *")).definition
    made = planned(edited(schedule="0 9 * * *"), stored)
    assert made.arming.due_us == at("2026-03-02 09:00")


def test_resuming_runs_nothing_of_the_suspension():
    # CronJob runs the latest slot of the suspension at once.
    stored = planned(a_spec(schedule="0 * * * *", suspend=True)).definition
    made = planned(edited(schedule="0 * * * *", suspend=False), stored)
    assert made.arming.due_us == at("2026-03-01 16:00")
    assert made.skipped == 4  # 12 to 15 o'clock


def test_resuming_to_the_second_of_a_slot_leaves_that_slot_to_the_suspension():
    stored = planned(a_spec(schedule="0 * * * *", suspend=True)).definition
    made = planned(edited(schedule="0 * * * *"), stored, now="2026-03-01 15:00:00")
    assert (made.skipped, made.arming.due_us) == (4, at("2026-03-01 16:00"))


@pytest.mark.parametrize(
    ("fields", "state", "missed"),
    [
        ({"schedule": "@at 2026-03-01T11:00:00Z"}, State.COMPLETED, 1),
        (
            {"schedule": "@at 2026-03-01T11:00:00Z", "startingDeadlineSeconds": 86_400},
            State.ARMED,
            0,
        ),
        (
            {"schedules": ["@at 2026-03-01T11:00:00Z", "@at 2026-03-01T11:30:00Z"]},
            State.COMPLETED,
            2,
        ),
        (
            {"schedules": ["@at 2026-03-01T11:00:00Z", "@at 2026-03-01T18:00:00Z"]},
            State.ARMED,
            1,
        ),
        ({"schedules": ["@at 2026-03-01T11:00:00Z", "0 * * * *"]}, State.ARMED, 0),
        (
            {"schedule": "@at 2026-03-01T11:00:00Z", "endTime": "2026-03-01T10:00:00Z"},
            State.COMPLETED,
            0,
        ),
    ],
    ids=["past", "covered", "two-past", "past-and-future", "beside-a-cron", "after-the-end"],
)
def test_one_shots_in_the_past(fields, state, missed):
    made = planned(a_spec(**fields))
    assert (made.definition.state, made.missed) == (state, missed)
