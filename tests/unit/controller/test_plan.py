"""What the queue should hold for a Schedule."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.controller import plan, statusconditions
from duepoint.controller.status.published import Status
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import State
from duepoint.schedules.diagnosis import Shown
from tests.support.builders import CREATED_US, JOB_TEMPLATE, a_definition, a_rule, a_spec, at

NOW_US = at("2026-03-01 15:02:00")
NEW = Status()


def ready(reason="Armed", status="True"):
    return [Shown("Ready", status, reason, observed_generation=1)]


ACCEPTED = Status(observed_generation=1, conditions=ready(), settled_through="2026-03-01T14:55:00Z")


def decide(spec, stored=None, shown=NEW, now_us=NOW_US):
    return plan.decide(spec, stored, shown, now_us, target="digest")


def edited(generation=2, **fields):
    return msgspec.structs.replace(a_spec(**fields), generation=generation)


def held(**fields):
    """What the queue holds after a first look at a spec."""
    return decide(a_spec(**fields)).definition


def test_a_lost_index_is_rebuilt_from_the_watermark_of_the_status():
    made = decide(a_spec(schedule="*/5 * * * *"), None, ACCEPTED)
    assert made.definition.not_before_us == at("2026-03-01 14:55:00")
    assert made.arming.due_us == at("2026-03-01 15:00:00")
    assert made.definition.timing_generation == 1


def test_a_spec_that_was_last_accepted_in_another_form_starts_from_now():
    made = decide(edited(2, schedule="*/5 * * * *"), None, ACCEPTED)
    assert made.arming.due_us == at("2026-03-01 15:05:00")


def test_a_spec_that_was_refused_before_starts_from_now_when_it_is_mended():
    refused = Status(observed_generation=1, conditions=ready("InvalidSpec", "False"))
    made = decide(edited(2, schedule="*/5 * * * *"), None, refused)
    assert made.definition.not_before_us == NOW_US


@pytest.mark.parametrize(
    "fields",
    [
        {"webhook": {"url": "https://other.example.com"}},
        {"payload": {"a": 1}},
        {"startingDeadlineSeconds": 60},
        {"catchUpPolicy": "All"},
    ],
    ids=["target", "payload", "deadline", "catch-up"],
)
def test_an_edit_of_anything_but_the_timing_keeps_the_chain(fields):
    stored = held(schedule="*/5 * * * *")
    made = decide(edited(2, schedule="*/5 * * * *", **fields), stored)
    assert made.arming.keep_chain
    assert made.arming.due_us is None
    assert made.definition.timing_version == stored.timing_version
    assert made.definition.not_before_us == stored.not_before_us
    assert made.definition.generation == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "*/10 * * * *"},
        {"schedule": "*/5 * * * *", "timeZone": "Europe/Rome"},
        {"schedule": "*/5 * * * *", "jitter": "10s"},
        {"schedule": "*/5 * * * *", "startTime": "2026-01-01T00:00:00Z"},
        {"schedule": "*/5 * * * *", "dst": {"gap": "Skip"}},
    ],
    ids=["schedule", "zone", "jitter", "start", "dst"],
)
def test_an_edit_of_the_timing_starts_from_the_moment_it_is_seen(fields):
    stored = held(schedule="*/5 * * * *")
    made = decide(edited(2, **fields), stored)
    assert not made.arming.keep_chain
    assert made.definition.not_before_us == NOW_US
    assert made.definition.timing_generation == 2
    assert made.definition.timing_version != stored.timing_version
    assert made.arming.due_us > NOW_US


def test_a_change_of_target_that_changes_what_a_slot_is_counts_as_timing():
    stored = held(schedule="@every 1m")
    made = decide(edited(2, schedule="@every 1m", jobTemplate=JOB_TEMPLATE), stored)
    assert not made.arming.keep_chain


def test_suspend_until_puts_the_chain_at_the_first_slot_from_then_on():
    made = decide(a_spec(schedule="*/5 * * * *", suspend=True, suspendUntil="2026-03-02T00:00:00Z"))
    assert made.definition.state is State.ARMED
    assert made.arming.due_us == at("2026-03-02 00:00:00")


def test_slots_under_suspension_are_counted_when_it_ends():
    stored = held(schedule="*/5 * * * *", suspend=True)
    made = decide(edited(2, schedule="*/5 * * * *"), stored)
    # 12:00 to 15:00, every five minutes
    assert made.skipped == 37
    assert made.arming.due_us == at("2026-03-01 15:05:00")


def test_a_new_one_shot_in_the_past_is_missed_and_completed():
    made = decide(a_spec(schedule="@at 2026-03-01T11:00:00Z"))
    assert made.definition.state is State.COMPLETED
    assert made.missed == 1


def test_a_new_one_shot_in_the_past_runs_when_an_explicit_deadline_covers_it():
    made = decide(a_spec(schedule="@at 2026-03-01T11:00:00Z", startingDeadlineSeconds=5 * 3600))
    assert made.definition.state is State.ARMED
    assert made.arming.due_us == at("2026-03-01 11:00:00")
    assert made.missed == 0


@pytest.mark.parametrize(("late_seconds", "missed"), [(2, 0), (59, 0), (61, 1)])
def test_a_new_one_shot_that_passed_within_the_last_minute_runs(late_seconds, missed):
    """Whenever the operator sees it: what has no deadline is judged as it was written."""
    made = decide(a_spec(schedule=f"@at {CREATED_US // 1_000_000 - late_seconds}"))
    assert made.missed == missed
    assert made.definition.state is (State.COMPLETED if missed else State.ARMED)


def test_an_edit_to_a_one_shot_in_the_past_runs_nothing_whatever_the_deadline():
    spec = edited(2, schedule="@at 2026-03-01T11:00:00Z", startingDeadlineSeconds=86_400)
    made = decide(spec, held(schedule="*/5 * * * *"))
    assert made.definition.state is State.COMPLETED
    assert made.missed == 0


def test_a_one_shot_that_ran_stays_completed_when_its_target_is_edited():
    stored = msgspec.structs.replace(
        held(schedule="@at 2026-03-01T13:00:00Z"), state=State.COMPLETED
    )
    made = decide(edited(2, schedule="@at 2026-03-01T13:00:00Z", payload=1), stored)
    assert made.definition.state is State.COMPLETED


ARMED = msgspec.structs.replace(ACCEPTED, timing_hash=rules.timing_hash(a_spec().rule))


@pytest.mark.parametrize(
    ("shown", "fields"),
    [
        pytest.param({"settled_through": ""}, {}, id="no watermark"),
        pytest.param(
            {"observed_generation": 0, "timing_hash": "other"}, {}, id="another generation"
        ),
        pytest.param({"timing_hash": "other"}, {}, id="another timing"),
        pytest.param({"conditions": ready("Suspended")}, {}, id="shown as suspended"),
        pytest.param({}, {"schedule": "@at 2026-03-01T13:00:00Z"}, id="no slot left"),
        pytest.param({}, {"suspend": True}, id="suspended"),
        pytest.param({}, {"suspend": True, "suspendUntil": "2026-04-01T00:00:00Z"}, id="until"),
        pytest.param({}, {"maxRuns": 3}, id="runs are counted"),
    ],
)
def test_every_other_rebuilt_chain_is_told(shown, fields):
    said = msgspec.structs.replace(ARMED, **shown)
    assert not plan.is_published(said, decide(a_spec(**fields), None, said))


@pytest.mark.parametrize(
    ("rule", "started", "reason", "says"),
    [
        (a_rule(max_runs=1), 1, "Completed", "1 run has started; spec.maxRuns is 1"),
        (a_rule(max_runs=2), 3, "Completed", "3 runs have started; spec.maxRuns is 2"),
        (a_rule(max_runs=2), 1, "Completed", "no slot is left"),
        (a_rule("@never"), 0, "ByHand", "@never"),
    ],
)
def test_a_schedule_without_slots_says_why(rule, started, reason, says):
    known = a_definition(rule=rule)
    assert says in statusconditions.completion(known, started)
    assert statusconditions.reason_without_slots(known) == reason
