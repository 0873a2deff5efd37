"""The fold of run events into what a status shows."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.runs import summary as summaries
from duepoint.runs.run import ENDED, RunEvent, RunState
from duepoint.runs.summary import RunTotals, Summary
from duepoint.runs.watermark import Watermark

S = 1_000_000


def event(slot=100, state=RunState.SUCCEEDED, **changes) -> RunEvent:
    """An event about a slot, in seconds; a run begins with its slot and takes one second."""
    finished = slot + 1 if state in ENDED else 0
    values = {
        "uid": "u",
        "namespace": "n",
        "name": "s",
        "generation": 1,
        "slot_us": slot * S,
        "trigger": "Schedule",
        "state": state,
        "reason": state.value,
        "at_us": slot * S,
        "started_us": slot * S,
        "finished_us": finished * S,
    }
    return RunEvent(**{**values, **changes})


def folded(*events, into=None, **options) -> Summary:
    summary = into or Summary()
    for one in events:
        summary = summaries.fold(summary, one, **options)
    return summary


def test_a_run_that_starts_and_succeeds_counts_once_each():
    after = folded(event(state=RunState.RUNNING), event())
    assert after.counts == RunTotals(started=1, succeeded=1)
    assert after.last_run.outcome is RunState.SUCCEEDED
    assert after.last_success_us == 101 * S
    assert after.last_slot_us == 100 * S
    assert after.last_result.is_success


def test_a_failed_run_leaves_the_last_success_alone():
    after = folded(event(100), event(200, RunState.FAILED))
    assert (after.last_success_us, after.last_failure_us) == (101 * S, 201 * S)
    assert not after.last_result.is_success
    assert folded(event(50), into=after).last_result == after.last_result
    assert after.counts == RunTotals(started=2, succeeded=1, failed=1)
    assert after.counts.ended == 2


@pytest.mark.parametrize(
    ("attempts", "reason", "fails"),
    [(1, "Network", 0), (2, "Network", 1), (2, "ReceiverBusy", 0), (1, "RunFailed", 1)],
)
def test_a_run_under_way_counts_as_failing_after_two_attempts(attempts, reason, fails):
    after = folded(event(state=RunState.RUNNING, attempts=attempts, reason=reason))
    assert bool(after.failure) == fails


@pytest.mark.parametrize("state", list(RunState))
def test_the_same_event_twice_changes_nothing_the_second_time(state):
    once = folded(event(state=state))
    assert folded(event(state=state), into=once) == once


def test_a_replaced_run_has_ended_and_is_no_failure():
    before = folded(event(100))
    after = folded(event(200, RunState.RUNNING), event(200, RunState.REPLACED), into=before)
    assert after.counts == RunTotals(started=2, succeeded=1, replaced=1)
    assert after.counts.ended == 2
    assert after.last_run.outcome is RunState.REPLACED
    assert after.last_failure_us == 0
    assert after.last_result == before.last_result


@pytest.mark.parametrize("late", [RunState.FAILED, RunState.SUCCEEDED, RunState.RUNNING])
def test_a_replaced_run_stays_one_whatever_is_told_later(late):
    before = folded(event(state=RunState.REPLACED))
    assert folded(event(state=late), into=before).counts == before.counts


def test_an_end_told_before_its_start_counts_one_run():
    after = folded(event(), event(state=RunState.RUNNING))
    assert after.counts == RunTotals(started=1, succeeded=1)
    assert after.last_run.outcome is RunState.SUCCEEDED


def test_the_end_of_a_job_counts_while_its_run_is_listed_and_never_before_or_after():
    end = event(200, job_name="j", job_uid="uid")
    assert folded(end).counts == RunTotals()
    after = folded(event(200, RunState.RUNNING, job_name="j"), end, end)
    assert after.counts == RunTotals(started=1, succeeded=1)
    assert [summaries.has_ended(after, one * S) for one in (100, 200)] == [False, True]
    forgetful = msgspec.structs.replace(after, recent=())
    assert folded(end, into=forgetful).counts == after.counts


def test_a_record_is_the_summary_again():
    after = folded(
        event(100, RunState.FAILED, message="no"),
        event(200, RunState.RUNNING, job_name="j", reason="RunFailed"),
        event(250, RunState.RUNNING, trigger="Manual", run_uid="r", reason="EndpointGone"),
        event(300, RunState.MISSED, message="gone"),
    )
    settled = Watermark(after.settled_us, (100 * S,), (200 * S,))
    record = summaries.unpack(summaries.pack(after, settled))
    assert (record.started_us, record.waiting_us) == ((100 * S,), (200 * S,))
    assert msgspec.structs.replace(record, started_us=(), waiting_us=()) == after
    assert summaries.unpack(b"of another version") == Summary()


def test_of_a_status_and_a_record_the_one_with_the_larger_watermark_or_counters_is_newer():
    first = folded(event(100, settled_us=100 * S))
    second = folded(event(200, RunState.RUNNING, job_name="j", settled_us=200 * S), into=first)
    third = folded(event(200, job_name="j"), into=second)
    for newer, older in ((second, first), (third, second)):
        assert newer.order > older.order


def test_missed_slots_count_by_their_number_and_are_no_runs():
    after = folded(event(state=RunState.MISSED, count=7, reason="CatchUpPolicy"))
    assert after.counts == RunTotals(missed=7)
    assert (after.last_run, after.missed) == (None, None)  # its author wanted them missed
    assert after.last_slot_us == 0


def test_the_watermark_never_falls():
    after = summaries.settled(folded(), 200 * S)
    assert summaries.settled(after, 50 * S).settled_us == 200 * S


def test_a_completion_from_before_an_edit_of_the_timing_does_not_count():
    for generation in (3, 4):
        after = folded(event(completed=True, generation=generation), timing_generation=4)
        assert after.completed is (generation == 4)


def test_manual_runs_count_but_do_not_move_the_last_slot():
    after = folded(event(100), event(500, trigger="Manual", run_uid="a"))
    assert (after.counts.started, after.counts.regular) == (2, 1)
    assert after.last_slot_us == 100 * S
    assert after.last_run.trigger == "Manual"


# -- each start once -----------------------------------------------------------------------------


def test_a_hundred_deliveries_that_are_tried_again_and_again_are_a_hundred_starts():
    slots = range(1000, 2000, 10)
    after = folded(*(event(slot, RunState.RUNNING, attempts=1) for slot in slots))
    for attempt in range(2, 5):
        tries = (event(slot, RunState.RUNNING, attempts=attempt) for slot in slots)
        after = folded(*tries, into=after)
    after = folded(*(event(slot) for slot in slots), into=after)
    assert after.counts == RunTotals(started=100, succeeded=100)


@pytest.mark.parametrize("trigger", ["Schedule", "Manual"])
def test_no_more_runs_have_ended_than_started(trigger):
    """News of starts went with a lost Redis; the ends are told all the same."""
    after = folded(*(event(slot, trigger=trigger) for slot in (100, 200, 300)))
    assert (after.counts.started, after.counts.succeeded) == (3, 3)
    assert after.counts.manual == (3 if trigger == "Manual" else 0)
