"""Which slots a ScheduleRun asks for, and in which order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted
from tests.support.builders import a_definition, a_rule, at

HOUR = 3_600_000_000
CREATED = at("2026-01-01 00:00:00")
NOW = at("2026-03-01 12:00:00")


def line(schedule="0 * * * *", **changes):
    return manualruns.timeline(a_definition(schedule, created_us=CREATED, **changes))


def a_backfill(begin, end, **changes) -> Wanted:
    values = {"from_us": begin, "to_us": end, "asked_us": NOW, **changes}
    return Wanted(schedule="nightly", slots=Backfill(**values))


def all_of(wanted, timeline, cursor=None):
    return list(manualruns.following(wanted, timeline, cursor, whole_seconds=True))


def test_the_begin_belongs_to_a_range_and_the_end_does_not():
    wanted = a_backfill(NOW - 3 * HOUR, NOW)
    assert all_of(wanted, line()) == [NOW - 3 * HOUR, NOW - 2 * HOUR, NOW - HOUR]
    assert manualruns.left(wanted, line()) == 3


def test_a_slot_after_the_asking_does_not_belong_to_a_range():
    wanted = a_backfill(NOW - HOUR, NOW + 5 * HOUR)
    assert all_of(wanted, line()) == [NOW - HOUR, NOW]


@given(
    begin=st.integers(-50, 0), length=st.integers(1, 60), taken=st.integers(0, 60),
    newest_first=st.booleans(),
)  # fmt: skip
def test_a_cursor_divides_a_range_without_loss_or_doubling(begin, length, taken, newest_first):
    start = NOW + begin * HOUR - 7
    wanted = a_backfill(start, start + length * HOUR, newest_first=newest_first)
    whole = all_of(wanted, line())
    first = list(itertools.islice(iter(whole), taken))
    cursor = first[-1] if first else None
    assert first + all_of(wanted, line(), cursor) == whole
    assert whole == sorted(whole, reverse=newest_first)
    assert manualruns.left(wanted, line()) == len(whole)
    assert manualruns.left(wanted, line(), cursor) == len(whole) - len(first)
    for slot_us in whole:
        is_after = manualruns.is_after(wanted, slot_us, cursor)
        assert is_after == (slot_us not in first)


def test_a_suspension_hides_no_slot_of_the_past():
    wanted = a_backfill(NOW - 2 * HOUR, NOW)
    rule = a_rule("0 * * * *", suspend=True, suspend_until_us=NOW)
    known = a_definition(rule=rule, created_us=CREATED)
    assert len(all_of(wanted, manualruns.timeline(known))) == 2


@pytest.mark.parametrize(("whole_seconds", "slot"), [(True, 3_000_000), (False, 3_141_000)])
def test_the_slot_of_a_trigger_is_cut_to_what_its_target_can_name(whole_seconds, slot):
    wanted = Wanted(schedule="nightly", slots=Trigger(slot_us=3_141_592))
    found = manualruns.following(wanted, line(), None, whole_seconds=whole_seconds)
    assert list(found) == [slot]
    assert manualruns.left(wanted, line(), slot) == 0
