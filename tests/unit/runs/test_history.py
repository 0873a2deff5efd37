"""The last slots of a schedule, folded from events that come twice and out of order."""

from __future__ import annotations

import random

import msgspec
import pytest

from duepoint.controller.status import published
from duepoint.runs import history
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.watermark import OpenSlot

SECOND = 1_000_000
T0 = 1_798_761_600 * SECOND  # 2027-01-01T00:00:00Z


def an_event(number=0, state=RunState.SUCCEEDED, **fields):
    slot_us = T0 + number * 60 * SECOND
    usual = {
        "trigger": "Schedule",
        "reason": state.value,
        "at_us": slot_us + SECOND,
        "started_us": slot_us + SECOND // 4,
        "finished_us": slot_us + SECOND if state is not RunState.RUNNING else 0,
        "attempts": 1,
    }
    usual |= fields
    return RunEvent(
        uid="u", namespace="n", name="s", generation=1, slot_us=slot_us, state=state, **usual
    )


def folded(*events):
    kept = ()
    for event in events:
        kept = history.fold(kept, event)
    return kept


def rows(kept, open_slots=()):
    return msgspec.to_builtins(published.recent_runs(kept, open_slots))


def test_only_the_newest_ten_slots_are_kept_newest_first():
    kept = folded(*(an_event(number) for number in range(25)))
    assert [entry.slot_us for entry in kept] == [
        T0 + number * 60 * SECOND for number in range(24, 14, -1)
    ]


def test_the_order_and_the_number_of_deliveries_of_events_change_nothing():
    events = [an_event(number) for number in range(6)]
    events += [an_event(6, RunState.MISSED, reason="Forbidden"), an_event(7, RunState.FAILED)]
    wanted = folded(*events)
    for seed in range(20):
        shuffled = events * 2
        random.Random(seed).shuffle(shuffled)
        assert folded(*shuffled) == wanted


def test_a_retried_slot_is_one_entry_with_its_first_start_and_all_attempts():
    began = an_event(0, RunState.RUNNING, reason="Network", message="refused", finished_us=0)
    ended = an_event(
        0, RunState.FAILED, reason="Network", message="slow", attempts=4, started_us=T0 + 9 * SECOND
    )
    (row,) = rows(folded(began, ended))
    assert row == {
        "scheduledTime": "2027-01-01T00:00:00Z",
        "startTime": "2027-01-01T00:00:00.250000Z",
        "finishTime": "2027-01-01T00:00:01Z",
        "outcome": "Failed",
        "reason": "Network",
        "message": "slow",
        "attempts": 4,
    }


def test_a_start_that_comes_after_its_end_does_not_open_the_slot_again():
    kept = folded(an_event(), an_event(0, RunState.RUNNING, reason="Running", finished_us=0))
    assert [entry.outcome for entry in kept] == [RunState.SUCCEEDED]


def test_a_slot_run_again_by_hand_is_an_entry_of_its_own_and_as_new_as_its_start():
    regular = [an_event(number) for number in range(12)]
    again = an_event(
        0, trigger="Backfill", job_name="s-1-abc", started_us=T0 + 3600 * SECOND, run_uid="r"
    )
    kept = folded(*regular, again)
    assert kept[0].trigger == "Backfill"
    assert len(kept) == history.MOST


@pytest.mark.parametrize(
    "event",
    [
        an_event(0),
        an_event(0, RunState.FAILED, reason="RunFailed", message="m", job_name="s-1"),
        an_event(0, RunState.RUNNING, reason="Network", message="refused", finished_us=0),
        an_event(0, RunState.RUNNING, reason="Running", job_name="s-1", finished_us=0),
        an_event(0, RunState.SKIPPED, reason="Suspended", count=7),
        an_event(0, RunState.REPLACED, reason="Replaced", trigger="Manual"),
        an_event(0, trigger="CatchUp", attempts=3),
    ],
    ids=lambda event: f"{event.state}-{event.reason}-{event.trigger}",
)
def test_what_a_status_shows_is_read_back_to_the_same_rows(event):
    shown = rows(folded(event))
    again = published.history(msgspec.convert(shown, list[published.Row]))
    assert rows(again) == shown
    assert history.fold(again, event) == again or not again[0].is_over


def waiting(number, reason="Forbidden", message="quota: pods 1 of 1"):
    slot_us = T0 + number * 60 * SECOND
    return (OpenSlot(slot_us=slot_us, due_us=slot_us, reason=reason, message=message),)


def test_a_slot_that_was_put_off_waits_with_its_reason_and_is_not_history():
    shown = rows(folded(an_event(0)), waiting(1))
    assert [row["outcome"] for row in shown] == ["Waiting", "Succeeded"]
    assert (shown[0]["reason"], shown[0]["message"]) == ("Forbidden", "quota: pods 1 of 1")
    assert len(published.history(msgspec.convert(shown, list[published.Row]))) == 1
