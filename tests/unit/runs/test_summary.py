"""The fold of run events into what a status shows."""

from __future__ import annotations

import dataclasses

import pytest

from duepoint.runs import summary as summaries
from duepoint.runs.run import ENDED, RunEvent, RunState
from duepoint.runs.summary import RunTotals, Summary

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


def restarted(summary: Summary) -> Summary:
    """As read back from the status by another process."""
    return summaries.loaded(dataclasses.replace(summary, recent=()))


def test_a_run_that_starts_and_succeeds_counts_once_each():
    after = folded(event(state=RunState.RUNNING), event())
    assert after.counts == RunTotals(started=1, succeeded=1)
    assert after.last_run.outcome is RunState.SUCCEEDED
    assert after.last_success_us == 101 * S
    assert after.last_slot_us == 100 * S
    assert after.last_result.succeeded


def test_a_failed_run_leaves_the_last_success_alone():
    after = folded(event(100), event(200, RunState.FAILED))
    assert (after.last_success_us, after.last_failure_us) == (101 * S, 201 * S)
    assert not after.last_result.succeeded
    assert after.counts == RunTotals(started=2, succeeded=1, failed=1)


@pytest.mark.parametrize("state", list(RunState))
def test_the_same_event_twice_changes_nothing_the_second_time(state):
    once = folded(event(state=state))
    assert folded(event(state=state), into=once) == once


def test_a_replaced_run_has_ended_and_is_no_failure():
    before = folded(event(100))
    after = folded(event(200, RunState.RUNNING), event(200, RunState.REPLACED), into=before)
    assert after.counts == RunTotals(started=2, succeeded=1, replaced=1)
    assert after.last_run.outcome is RunState.REPLACED
    assert (after.last_replaced_us, after.last_failure_us) == (201 * S, 0)
    assert after.last_result == before.last_result
    assert summaries.same_result(before, after)


@pytest.mark.parametrize("late", [RunState.FAILED, RunState.SUCCEEDED, RunState.RUNNING])
def test_a_replaced_run_stays_one_whatever_is_told_later(late):
    before = folded(event(state=RunState.REPLACED))
    assert folded(event(state=late), into=before).counts == before.counts


def test_an_end_told_before_its_start_counts_one_run():
    after = folded(event(), event(state=RunState.RUNNING))
    assert after.counts == RunTotals(started=1, succeeded=1)
    assert after.last_run.outcome is RunState.SUCCEEDED


def test_replays_after_a_restart_count_nothing_that_the_status_shows():
    events = [event(100), event(200, RunState.FAILED), event(300)]
    shown = restarted(folded(*events))
    assert folded(*events, into=shown, replayed=True).counts == shown.counts


def test_the_end_of_a_job_that_ran_through_a_restart_is_counted():
    shown = restarted(folded(event(100), event(200, RunState.RUNNING)))
    after = folded(event(200, finished_us=500 * S), into=shown, replayed=True)
    assert after.counts == RunTotals(started=2, succeeded=2)
    assert after.last_run.outcome is RunState.SUCCEEDED


def test_missed_slots_count_by_their_number_and_are_no_runs():
    after = folded(event(state=RunState.MISSED, count=7, reason="CatchUpPolicy"))
    assert after.counts == RunTotals(missed=7)
    assert after.last_run is None
    assert after.last_slot_us == 0


def test_the_watermark_never_falls():
    after = folded(event(200, settled_us=200 * S), event(100, settled_us=100 * S))
    assert after.settled_us == 200 * S
    assert summaries.settled(after, 50 * S).settled_us == 200 * S


def test_a_completion_from_before_an_edit_of_the_timing_does_not_count():
    after = folded(event(completed=True, generation=3), timing_generation=4)
    assert not after.completed


def test_manual_runs_count_but_do_not_move_the_last_slot():
    after = folded(event(100), event(500, trigger="Manual", job_name="a"))
    assert after.counts.started == 2
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


def test_a_job_seen_again_after_a_restart_is_not_another_start():
    """Its start is told by another clock than that of the worker that told of it first."""
    shown = restarted(folded(event(300, RunState.RUNNING)))
    seen = event(300, started_us=300 * S + 5, finished_us=320 * S, job_uid="j")
    assert folded(seen, into=shown, replayed=True).counts == RunTotals(started=1, succeeded=1)


@pytest.mark.parametrize("trigger", ["Schedule", "Manual"])
def test_no_more_runs_have_ended_than_started(trigger):
    """News of starts went with a lost Redis; the ends are told all the same."""
    after = folded(*(event(slot, trigger=trigger) for slot in (100, 200, 300)))
    assert (after.counts.started, after.counts.succeeded) == (3, 3)
    assert after.counts.manual == (3 if trigger == "Manual" else 0)
