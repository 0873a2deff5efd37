"""Which slots have not ended, and what that does to the watermark."""

from __future__ import annotations

import pytest

from duepoint.runs import summary as summaries
from duepoint.runs.openslots import OpenSlot, OpenSlots
from duepoint.runs.run import RunState
from tests.unit.runs.test_summary import S, event, folded, restarted

HOUR = 3_600 * S


def a_slot(slot=100, **changes) -> OpenSlot:
    return OpenSlot(**{"slot_us": slot * S, "due_us": slot * S, "told_us": slot * S, **changes})


def open_at(*slots, **changes) -> OpenSlots:
    made = OpenSlots()
    for slot in slots:
        made.put(a_slot(slot, **changes))
    return made


def test_the_oldest_is_the_oldest_that_has_not_ended():
    slots = open_at(300, 100, 200)
    assert slots.oldest_us() == 100 * S
    slots.end(100 * S)
    assert slots.oldest_us() == 200 * S
    slots.end(300 * S)
    slots.end(200 * S)
    assert slots.oldest_us() is None


def test_a_range_that_was_missed_ends_all_of_it_and_nothing_else():
    slots = open_at(50, 100, 200, 300)
    slots.end(200 * S, since_us=100 * S)
    assert [slot for slot in (50, 100, 200, 300) if slot * S in slots] == [50, 300]


def test_being_handed_over_again_does_not_hide_why_it_was_put_off():
    slots = open_at(100, reason="QuotaExceeded", message="no room")
    slots.put(a_slot(100))
    assert slots.overdue(200 * S).message == "no room"


def test_what_was_put_off_is_overdue_after_a_minute():
    slots = open_at(100, reason="QuotaExceeded")
    assert slots.overdue(160 * S - 1) is None
    assert slots.next_overdue_us(160 * S - 1) == 160 * S
    assert slots.overdue(160 * S).slot_us == 100 * S
    assert slots.next_overdue_us(160 * S) is None


def test_what_nobody_has_put_off_is_not_called_overdue():
    assert open_at(100).overdue(10_000 * S) is None


def test_slots_found_in_the_queue_are_open_unless_they_are_passed():
    slots = OpenSlots()
    slots.compare([a_slot(100), a_slot(200)], passed_us=100 * S, began_us=300 * S)
    assert slots.oldest_us() == 200 * S


@pytest.mark.parametrize(
    ("told_seconds", "passed", "stays"),
    [(100, 50, True), (100, 100, False), (20_000, 100, True)],
    ids=["above-the-watermark", "below-it", "told-since"],
)
def test_what_the_queue_does_not_hold_goes_where_that_moves_no_watermark(
    told_seconds, passed, stays
):
    slots = open_at(100, told_us=told_seconds * S)
    slots.compare([], passed_us=passed * S, began_us=200 * S)
    assert (100 * S in slots) is stays


def test_what_nobody_has_told_of_for_an_hour_is_forgotten():
    slots = open_at(100)
    slots.compare([], passed_us=0, began_us=100 * S + HOUR)
    assert 100 * S in slots
    slots.compare([], passed_us=0, began_us=101 * S + HOUR)
    assert 100 * S not in slots


# -- the watermark ------------------------------------------------------------------------------


def test_the_watermark_stays_below_the_oldest_open_slot():
    after = folded(event(200, settled_us=200 * S), open_us=100 * S)
    assert after.settled_us == 100 * S - 1
    assert folded(event(300, settled_us=300 * S), into=after, open_us=250 * S).settled_us < 250 * S


def test_the_watermark_moves_on_at_once_when_the_last_open_slot_ends():
    after = folded(event(200, settled_us=200 * S), open_us=100 * S)
    assert folded(event(100, settled_us=100 * S), into=after).settled_us == 200 * S


def test_the_watermark_does_not_fall_when_an_older_slot_opens():
    after = folded(event(200, settled_us=200 * S))
    assert folded(event(300, settled_us=300 * S), into=after, open_us=50 * S).settled_us == 200 * S


def test_a_slot_that_is_put_off_counts_as_nothing():
    put_off = event(100, RunState.PENDING)
    assert folded(put_off) == summaries.Summary()
    after = folded(event(100))
    assert folded(put_off, into=after) == after


def test_a_slot_that_ended_is_known_to_have_ended_in_any_way():
    after = folded(event(100), event(200, RunState.MISSED), event(300, trigger="Manual"))
    assert [summaries.has_ended(after, slot * S) for slot in (100, 200, 300)] == [True, True, False]


def test_a_taken_name_is_remembered_until_a_later_run_starts():
    taken = event(200, RunState.MISSED, reason="NameConflict", message="another Job")
    after = folded(taken, event(100))
    assert after.conflict.message == "another Job"
    assert folded(event(300, RunState.RUNNING), into=after).conflict is None


def test_a_restart_begins_where_the_watermark_was():
    after = folded(event(200, settled_us=200 * S), open_us=100 * S)
    assert restarted(after).settled_us == 100 * S - 1
