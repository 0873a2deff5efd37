"""One attempt and its outcome: what the queue and the ledger are told."""

from __future__ import annotations

import dataclasses

import pytest

from duepoint.delayqueue import messages
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.runs.outcome import RetryLimits
from duepoint.runs.run import RunState
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.schedules.slots import DueSlot
from duepoint.worker import endings
from duepoint.worker.plan import Attempt
from tests.support.builders import a_definition, at

NOON = at("2026-03-01 12:00:00")
KNOWN = a_definition("*/5 * * * *")
LIMITS = RetryLimits(
    first_us=5_000_000, most_us=900_000_000, max_attempts=3, give_up_us=NOON + 3_600_000_000
)
DELIVERED = outcomes.Delivered(accepted_us=NOON + 3_000, http_status=200)
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="refused")


def an_attempt(kind: PointKind = PointKind.CHAIN, **changes) -> Attempt:
    point = DuePoint(
        schedule_id=KNOWN.id,
        timing_version=KNOWN.timing_version,
        kind=kind,
        due_us=NOON,
        slot_us=NOON,
    )
    values = {
        "point": point,
        "definition": KNOWN,
        "slot_us": NOON,
        "due_us": NOON,
        "previous_us": None,
        "trigger": "Schedule",
        "following": DueSlot(NOON + 300_000_000, NOON + 300_000_000),
    }
    return Attempt(**{**values, **changes})


def close(
    attempt: Attempt, outcome, *, kind=actions.WebhookAction, limits=LIMITS, fraction=0.5, **more
):
    return endings.settlement(
        endings.Tried(
            attempt=attempt,
            outcome=outcome,
            kind=kind,
            limits=limits,
            started_us=NOON + 1_000,
            now_us=NOON + 4_000,
            fraction=fraction,
            **more,
        )
    )


def test_a_delivered_slot_moves_its_chain_and_the_watermark():
    ending = close(an_attempt(), DELIVERED)
    assert [due_us for _, due_us in ending.chains] == [NOON + 300_000_000]
    assert not ending.finished
    (event,) = ending.events
    assert (event.state, event.settled_us, event.http_status) == (RunState.SUCCEEDED, NOON, 200)


def test_the_last_slot_finishes_the_chain_and_completes_the_schedule():
    ending = close(an_attempt(following=None, completes=True), DELIVERED)
    assert ending.finished
    assert ending.ended == ending.finished
    assert ending.events[0].completed


def test_a_job_that_exists_is_a_running_run():
    created = outcomes.Delivered(accepted_us=NOON, running=True, job_name="report-1772366400")
    (event,) = close(an_attempt(), created, kind=actions.JobAction).events
    assert (event.state, event.job_name, event.finished_us) == (
        RunState.RUNNING,
        "report-1772366400",
        0,
    )


JOB = outcomes.Delivered(accepted_us=NOON, running=True, job_name="s-1")


@pytest.mark.parametrize(
    ("told", "age_us", "had_owner"),
    [({"may_come_again": True}, 0, False), ({}, 60_000_000, False), ({}, 0, True)],
    ids=["the-target-says-so", "a-former-attempt-got-no-answer", "another-worker-held-it"],
)
def test_a_job_for_which_a_request_may_be_under_way_may_come_again(told, age_us, had_owner):
    asked = messages.OccurrenceRecord(unanswered_us=NOON - age_us if age_us else 0)
    ending = close(
        an_attempt(PointKind.RETRY, record=asked),
        dataclasses.replace(JOB, **told),
        kind=actions.JobAction,
        had_owner=had_owner,
    )
    assert ending.events[0].may_come_again


def test_a_failed_attempt_becomes_a_retry_and_the_chain_goes_on():
    ending = close(an_attempt(), UNREACHABLE)
    (retry,) = ending.occurrences
    assert retry.point.kind is PointKind.RETRY
    assert retry.point.due_us == NOON + 4_000 + 2_500_000
    assert (retry.record.attempt, retry.record.first_try_us) == (1, NOON + 1_000)
    assert retry.source == an_attempt().point.member
    assert ending.chains
    assert ending.events[0].state is RunState.RUNNING


def test_the_receivers_wish_is_a_floor_for_the_next_try():
    wish = outcomes.Retry(reason=Reason.NETWORK, message="busy", after_us=60_000_000)
    (retry,) = close(an_attempt(), wish, fraction=0.0).occurrences
    assert retry.point.due_us == NOON + 4_000 + 60_000_000


def test_an_attempt_that_never_began_is_not_counted():
    postponed = outcomes.Retry(
        reason=Reason.TIMEOUT, message="no time left", started=False, counted=False
    )
    ending = close(an_attempt(), postponed)
    assert ending.occurrences[0].record.attempt == 0
    assert [event.state for event in ending.events] == [RunState.PENDING]


def test_a_delivery_that_was_tried_before_has_started_even_if_its_next_try_never_began():
    postponed = outcomes.Retry(
        reason=Reason.TIMEOUT, message="no time left", started=False, counted=False
    )
    attempt = an_attempt(PointKind.RETRY, number=2, first_try_us=NOON - 1)
    assert not close(attempt, postponed).events


@pytest.mark.parametrize("started", [False, True], ids=["refused", "a-bug-of-ours"])
def test_a_job_that_is_put_off_leaves_its_slot_open_and_tells_why(started):
    refused = outcomes.Retry(reason=Reason.QUOTA_EXCEEDED, message="quota", started=started)
    (event,) = close(an_attempt(completes=True), refused, kind=actions.JobAction).events
    assert (event.state, event.reason, event.message) == (
        RunState.PENDING,
        Reason.QUOTA_EXCEEDED,
        "quota",
    )
    assert (event.settled_us, event.completed, event.due_us) == (0, False, NOON)


@pytest.mark.parametrize("number", [3, 4], ids=["at-the-limit", "beyond-it"])
def test_after_the_last_attempt_the_slot_is_a_dead_letter_and_a_failed_run(number):
    attempt = an_attempt(PointKind.RETRY, number=number)
    ending = close(attempt, UNREACHABLE)
    (letter,) = ending.dead
    assert letter.member == attempt.point.member
    assert letter.entry["attempts"] == str(number)
    assert ending.events[0].state is RunState.FAILED
    assert not ending.finished
    assert not ending.occurrences


def test_a_job_that_could_not_be_created_is_a_missed_slot():
    refused = outcomes.Rejected(reason=Reason.INVALID_JOB_TEMPLATE, message="no", started=False)
    (event,) = close(an_attempt(), refused, kind=actions.JobAction).events
    assert (event.state, event.reason) == (RunState.MISSED, Reason.INVALID_JOB_TEMPLATE)
    assert event.settled_us == NOON


def test_no_attempt_starts_after_the_deadline():
    limits = RetryLimits(first_us=1, most_us=1, max_attempts=9, give_up_us=NOON + 50_000)
    ending = close(an_attempt(), UNREACHABLE, limits=limits)
    assert ending.dead
    assert not ending.occurrences


def test_a_manual_run_does_not_move_the_watermark():
    record = messages.OccurrenceRecord(trigger="Manual", run_uid="u")
    (event,) = close(
        an_attempt(PointKind.MANUAL, trigger="Manual", record=record), DELIVERED
    ).events
    assert (event.settled_us, event.run_uid) == (0, "u")


def test_a_retry_of_a_manual_run_keeps_what_was_overridden():
    record = messages.OccurrenceRecord(
        trigger="Manual", run_uid="u", concurrency="Allow", payload=b"{}", signature="kept"
    )
    attempt = an_attempt(PointKind.MANUAL, trigger="Manual", record=record)
    (again,) = close(attempt, UNREACHABLE).occurrences
    assert (again.record.concurrency, again.record.payload) == ("Allow", b"{}")
    assert (again.record.run_uid, again.record.signature) == ("u", "kept")
    assert again.record.attempt == 1


def test_a_failed_try_says_when_the_next_one_is_and_keeps_its_cause():
    ending = close(an_attempt(), UNREACHABLE)
    (event,), (again,) = ending.events, ending.occurrences
    assert (event.state, event.reason) == (RunState.RUNNING, Reason.NETWORK)
    assert event.message == f"refused; next try at {run.instant_text(again.point.due_us)}"
    assert (again.record.last_error, again.record.last_cause) == ("Network", "refused")


# -- deliveries that wait without being tried ---------------------------------------------------

WAITING = outcomes.Retry(
    reason=Reason.CIRCUIT_OPEN,
    message="10 failures in a row, the last: refused",
    after_us=20_000_000,
    started=False,
    counted=False,
)


def test_a_slot_that_waits_for_a_circuit_is_open_and_has_used_no_attempt():
    ending = close(an_attempt(), WAITING)
    (retry,) = ending.occurrences
    assert (retry.record.attempt, retry.record.first_try_us) == (0, 0)
    (event,) = ending.events
    assert (event.state, event.reason, event.settled_us) == (
        RunState.PENDING,
        Reason.CIRCUIT_OPEN,
        0,
    )


def test_a_slot_that_waited_until_its_time_was_over_is_missed_and_kept_for_a_replay():
    limits = RetryLimits(first_us=1, most_us=1, max_attempts=3, give_up_us=NOON + 5_000)
    ending = close(an_attempt(), WAITING, limits=limits)
    (event,) = ending.events
    assert (event.state, event.reason) == (RunState.MISSED, Reason.DEADLINE_EXCEEDED)
    assert ending.dead


def test_a_slot_whose_receiver_is_gone_is_skipped_and_the_chain_goes_on():
    gone = outcomes.Skip(reason=Reason.ENDPOINT_GONE, message="410")
    ending = close(an_attempt(), gone)
    assert ending.chains
    assert not ending.dead
    (event,) = ending.events
    assert (event.state, event.reason, event.settled_us) == (
        RunState.SKIPPED,
        Reason.ENDPOINT_GONE,
        NOON,
    )
