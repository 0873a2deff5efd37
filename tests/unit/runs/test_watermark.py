"""Which slots have not ended, and what that does to the watermark."""

from __future__ import annotations

from duepoint.runs import watermark
from duepoint.runs.watermark import MOST_LISTED, OpenSlot, OpenSlots, Watermark
from tests.unit.runs.test_summary import S


def a_slot(slot=100, **changes) -> OpenSlot:
    return OpenSlot(**{"slot_us": slot * S, "due_us": slot * S, **changes})


def open_at(*slots, **changes) -> OpenSlots:
    return tuple(a_slot(slot, **changes) for slot in slots)


def test_a_range_that_was_missed_ends_all_of_it_and_nothing_else():
    left = watermark.without(open_at(50, 100, 200, 300), 200 * S, since_us=100 * S)
    assert left == open_at(50, 300)
    assert watermark.without(left, 300 * S) == open_at(50)


def test_what_was_put_off_is_overdue_after_a_minute():
    slots = open_at(100, reason="Forbidden")
    assert watermark.overdue(slots, 160 * S - 1) is None
    assert watermark.overdue(slots, 160 * S) == slots[0]


def test_what_has_started_is_not_called_overdue_whatever_it_waits_for():
    slots = open_at(100, reason="ConnectionRefused", started=True)
    assert watermark.overdue(slots, 10_000 * S) is None


# -- what a status lists ------------------------------------------------------------------------


def test_open_slots_up_to_the_watermark_are_listed_and_have_not_ended():
    slots = (a_slot(100), a_slot(200, started=True), a_slot(300))
    settled = watermark.settled(slots, 250 * S)
    assert settled == Watermark(250 * S, (200 * S,), (100 * S,))
    assert settled.open_us == (100 * S, 200 * S)
    ended = [settled.has_ended(slot * S) for slot in (50, 100, 150, 200, 250, 251)]
    assert ended == [True, False, True, False, True, False]
    assert watermark.settled(watermark.open_slots(settled), 250 * S) == settled


def test_the_watermark_stays_below_those_that_cannot_be_listed():
    slots = open_at(*range(1, MOST_LISTED + 1))
    assert watermark.listable_us(slots, 1_000 * S) == 1_000 * S
    more = (*slots, a_slot(MOST_LISTED + 1))
    listable_us = watermark.listable_us(more, 1_000 * S)
    assert listable_us == (MOST_LISTED + 1) * S - 1
    assert len(watermark.settled(more, listable_us).open_us) == MOST_LISTED


def test_what_an_edit_of_the_timing_has_ended_is_not_listed_unless_it_has_started():
    slots = (a_slot(100, superseded=True), a_slot(200, started=True, superseded=True))
    assert watermark.settled(slots, 300 * S).open_us == (200 * S,)
