"""Which slots have not ended, and what that does to the watermark."""

from __future__ import annotations

from duepoint.runs import summary as summaries
from duepoint.runs.watermark import MOST_LISTED, OpenSlot, OpenSlots, Watermark, newest
from tests.unit.runs.test_summary import S, event, folded

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


def test_what_was_put_off_is_overdue_after_a_minute():
    slots = open_at(100, reason="Forbidden")
    assert slots.overdue(160 * S - 1) is None
    assert slots.next_overdue_us(160 * S - 1) == 160 * S
    assert slots.overdue(160 * S).slot_us == 100 * S
    assert slots.next_overdue_us(160 * S) is None


def test_what_has_started_is_not_called_overdue_whatever_it_waits_for():
    slots = open_at(100, reason="ConnectionRefused", started=True)
    assert slots.overdue(10_000 * S) is None
    assert slots.next_overdue_us(0) is None


def test_what_nobody_has_told_of_for_an_hour_is_forgotten():
    slots = open_at(100)
    slots.compare([], began_us=100 * S + HOUR)
    assert 100 * S in slots
    slots.compare([], began_us=101 * S + HOUR)
    assert 100 * S not in slots


# -- what a status lists ------------------------------------------------------------------------


def test_open_slots_up_to_the_watermark_are_listed_and_have_not_ended():
    slots = open_at(100, 300)
    slots.put(a_slot(200, started=True))
    settled = slots.settled(250 * S)
    assert settled == Watermark(250 * S, (200 * S,), (100 * S,))
    assert settled.open_us == (100 * S, 200 * S)
    ended = [settled.has_ended(slot * S) for slot in (50, 100, 150, 200, 250, 251)]
    assert ended == [True, False, True, False, True, False]


def test_the_watermark_stays_below_those_that_cannot_be_listed():
    slots = open_at(*range(1, MOST_LISTED + 1))
    assert slots.ceiling_us() is None
    slots.put(a_slot(MOST_LISTED + 1))
    assert slots.ceiling_us() == (MOST_LISTED + 1) * S - 1
    assert len(slots.settled(slots.ceiling_us()).open_us) == MOST_LISTED


def test_an_edit_of_the_timing_ends_what_was_planned_and_no_retry():
    slots = open_at(100)
    slots.put(a_slot(200, started=True))
    slots.put(a_slot(300, reason="Forbidden"))
    slots.supersede()
    assert slots.settled(300 * S).open_us == (200 * S, 300 * S)
    assert 100 * S in slots  # it may be under way
    assert not slots.put(a_slot(200, started=True))


def test_what_an_earlier_process_wrote_as_open_is_open_unless_there_are_later_news():
    slots = open_at(100, reason="Forbidden")
    slots.load(Watermark(300 * S, (200 * S,), (100 * S,)), 400 * S)
    assert slots.settled(300 * S) == Watermark(300 * S, (200 * S,), (100 * S,))
    assert slots.overdue(500 * S).reason == "Forbidden"


def test_the_newer_of_status_and_memory_has_the_larger_watermark():
    older, newer = Watermark(100 * S, (50 * S,)), Watermark(200 * S, (150 * S,))
    assert newest(older, newer) is newer
    assert newest(newer, older) is newer
    assert newest(older, None) is older
    counted = Watermark(200 * S)
    assert newest(newer, counted) is counted  # statuses are written from memory


# -- the watermark ------------------------------------------------------------------------------


def test_the_watermark_stays_at_its_ceiling():
    after = folded(event(200, settled_us=200 * S), ceiling_us=100 * S)
    assert after.settled_us == 100 * S
    later = folded(event(300, settled_us=300 * S), into=after, ceiling_us=250 * S)
    assert later.settled_us == 250 * S


def test_the_watermark_does_not_fall_with_its_ceiling():
    after = folded(event(200, settled_us=200 * S))
    later = folded(event(300, settled_us=300 * S), into=after, ceiling_us=50 * S)
    assert later.settled_us == 200 * S


def test_a_decision_ends_the_slots_up_to_it_and_none_that_the_watermark_had_to_stay_below():
    before = folded(event(300, settled_us=300 * S), ceiling_us=200 * S)
    assert summaries.passed(before, 100 * S).settled_us == 200 * S
    assert summaries.passed(before, 250 * S).settled_us == 250 * S
    assert summaries.settled(summaries.passed(before, 250 * S), 0).settled_us == 300 * S
