"""What the queue should hold for a Schedule."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.controller import plan
from duepoint.controller.plan import PublishedStatus
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import State
from tests.support.builders import CREATED_US, JOB_TEMPLATE, a_spec, at

NOW_US = at("2026-03-01 15:02:00")
NEW = PublishedStatus()
ACCEPTED = PublishedStatus(
    observed_generation=1, accepted=True, settled_us=at("2026-03-01 14:55:00")
)


def decide(spec, stored=None, shown=NEW, now_us=NOW_US):
    return plan.decide(spec, stored, shown, now_us, target="digest")


def edited(generation=2, **fields):
    return msgspec.structs.replace(a_spec(**fields), generation=generation)


def held(**fields):
    """What the queue holds after a first look at a spec."""
    return decide(a_spec(**fields)).definition


def test_a_lost_index_is_rebuilt_from_the_watermark_of_the_status():
    made = decide(a_spec(schedule="*/5 * * * *"), None, ACCEPTED)
    assert made.definition.not_before_us == ACCEPTED.settled_us
    assert made.arming.due_us == at("2026-03-01 15:00:00")
    assert made.definition.timing_generation == 1


def test_a_spec_that_was_last_accepted_in_another_form_starts_from_now():
    made = decide(edited(2, schedule="*/5 * * * *"), None, ACCEPTED)
    assert made.arming.due_us == at("2026-03-01 15:05:00")


def test_of_a_lost_index_a_delivery_that_failed_is_repeated_by_the_chain_or_else_by_a_retry():
    """The chain of the same timing comes to its slot again; that of another one does not."""
    failed_us = at("2026-03-01 15:00:00")
    shown = msgspec.structs.replace(ACCEPTED, retried_us=(failed_us,))
    same = decide(a_spec(schedule="*/5 * * * *"), None, shown)
    assert (same.arming.due_us, same.arming.open) == (failed_us, ())
    made = decide(edited(2, schedule="*/5 * * * *"), None, shown)
    assert made.arming.due_us == at("2026-03-01 15:05:00")
    (retry,) = made.arming.open
    assert (retry.point.kind, retry.point.slot_us) == (points.PointKind.RETRY, failed_us)
    assert retry.point.timing_version == made.definition.timing_version


def test_a_spec_that_was_refused_before_starts_from_now_when_it_is_mended():
    refused = PublishedStatus(observed_generation=1, accepted=False)
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


def test_the_same_spec_under_another_key_leaves_the_chain_where_it_is():
    stored = msgspec.structs.replace(held(schedule="*/5 * * * *"), fingerprint=b"old!")
    made = plan.decide(a_spec(schedule="*/5 * * * *"), stored, NEW, NOW_US, target="another")
    assert made.arming.keep_chain
    assert made.arming.due_us is None
    assert made.arming.replaces == b"old!"


def test_a_spec_that_means_something_else_now_moves_its_chain_and_leaves_out_no_jitter():
    fields = {"schedule": "0 15 * * *", "jitter": "1h"}
    stored = msgspec.structs.replace(held(**fields), fingerprint=b"old!")
    due_us = plan.slots_of(stored).due_slot(at("2026-03-01 15:00:00")).due_us
    assert due_us > NOW_US + plan.MOVING_US
    made = decide(a_spec(**fields), stored)
    assert made.arming.due_us == due_us
    assert made.arming.after_us == NOW_US + plan.MOVING_US


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


def an_accepted_edit(**fields):
    """A second generation, and a status that has accepted it and lists open slots."""
    wanted = edited(2, **fields)
    shown = PublishedStatus(
        observed_generation=2,
        accepted=True,
        settled_us=at("2026-03-01 14:55:00"),
        started_us=(at("2026-03-01 14:50:00"),),
        waiting_us=(at("2026-03-01 14:40:00"),),
        timing_hash=rules.timing_hash(wanted.rule),
        started=7,
    )
    return wanted, shown


def test_an_edit_that_the_queue_lost_goes_on_from_the_watermark_with_its_open_slots():
    wanted, shown = an_accepted_edit(schedule="*/10 * * * *")
    made = decide(wanted, held(schedule="*/5 * * * *", suspend=True), shown)
    assert made.definition.not_before_us == shown.settled_us
    assert made.definition.timing_generation == 2
    assert made.arming.due_us == at("2026-03-01 15:00:00")
    assert [one.point.slot_us for one in made.arming.open] == list(shown.settled.open_us)
    assert made.arming.undone_after_us == shown.settled_us
    assert (made.missed, made.skipped) == (0, 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"accepted": False},
        {"observed_generation": 1},
        {"settled_us": None},
        {"timing_hash": "another"},
    ],
    ids=["refused", "not yet seen", "nothing settled", "of another timing"],
)
def test_an_edit_that_no_status_has_accepted_starts_from_the_moment_it_is_seen(changed):
    wanted, shown = an_accepted_edit(schedule="*/10 * * * *")
    made = decide(wanted, held(schedule="*/5 * * * *"), msgspec.structs.replace(shown, **changed))
    assert made.definition.not_before_us == NOW_US
    assert not made.arming.open
    assert made.arming.undone_after_us is None


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


def test_slots_after_the_end_of_a_suspension_are_not_counted_as_skipped():
    stored = held(schedule="*/5 * * * *", suspend=True, suspendUntil="2026-03-01T12:14:00Z")
    said = plan.PublishedStatus(observed_generation=1, accepted=True, suspended=True)
    assert decide(edited(2, schedule="*/5 * * * *"), stored, said).skipped == 3
    counted = plan.PublishedStatus(observed_generation=1, accepted=True)
    assert decide(edited(2, schedule="*/5 * * * *"), stored, counted).skipped == 0


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


def test_a_new_one_shot_further_in_the_past_than_its_deadline_is_missed():
    made = decide(a_spec(schedule="@at 2026-03-01T11:00:00Z", startingDeadlineSeconds=3600))
    assert made.definition.state is State.COMPLETED
    assert made.missed == 1


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


def test_a_miss_whose_status_was_never_written_is_told_again():
    spec = a_spec(schedule="@at 2026-03-01T11:00:00Z")
    assert decide(spec, decide(spec).definition).missed == 1
    assert decide(spec, decide(spec).definition, ACCEPTED).missed == 0


def test_the_counter_of_a_shared_id_is_part_of_the_definition_from_then_on():
    made = plan.decide(a_spec(), None, NEW, NOW_US, target="digest", collision=1)
    assert made.definition.collision == 1
    again = plan.decide(edited(2, schedule="@every 7m"), made.definition, NEW, NOW_US, target="d")
    assert again.definition.collision == 1


def test_a_chain_that_was_lost_is_armed_from_the_newest_of_watermark_and_beginning():
    stored = held(schedule="*/5 * * * *")
    assert plan.chain_due_us(stored) == at("2026-03-01 12:00:00")
    assert plan.chain_due_us(stored, at("2026-03-01 14:55:00")) == at("2026-03-01 15:00:00")
    assert plan.chain_due_us(msgspec.structs.replace(stored, state=State.SUSPENDED)) is None


ARMED = PublishedStatus(
    observed_generation=1,
    accepted=True,
    armed=True,
    settled_us=at("2026-03-01 14:55:00"),
    timing_hash=rules.timing_hash(a_spec().rule),
)


@pytest.mark.parametrize(
    ("shown", "fields"),
    [
        pytest.param({"settled_us": None}, {}, id="no watermark"),
        pytest.param(
            {"observed_generation": 0, "timing_hash": "other"}, {}, id="another generation"
        ),
        pytest.param({"timing_hash": "other"}, {}, id="another timing"),
        pytest.param({"armed": False, "suspended": True}, {}, id="shown as suspended"),
        pytest.param({}, {"schedule": "@at 2026-03-01T13:00:00Z"}, id="no slot left"),
        pytest.param({}, {"suspend": True}, id="suspended"),
        pytest.param({}, {"suspend": True, "suspendUntil": "2026-04-01T00:00:00Z"}, id="until"),
        pytest.param({}, {"maxRuns": 3}, id="runs are counted"),
    ],
)
def test_every_other_rebuilt_chain_is_told(shown, fields):
    said = msgspec.structs.replace(ARMED, **shown)
    assert not plan.is_published(said, decide(a_spec(**fields), None, said))
