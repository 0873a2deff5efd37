"""Which slots a ScheduleRun asks for, and in which order."""

from __future__ import annotations

import pytest

from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted
from tests.support.builders import a_definition, at

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


def test_a_slot_after_the_asking_does_not_belong_to_a_range():
    wanted = a_backfill(NOW - HOUR, NOW + 5 * HOUR)
    assert all_of(wanted, line()) == [NOW - HOUR, NOW]


@pytest.mark.parametrize(("whole_seconds", "slot"), [(True, 3_000_000), (False, 3_141_000)])
def test_the_slot_of_a_trigger_is_cut_to_what_its_target_can_name(whole_seconds, slot):
    wanted = Wanted(schedule="nightly", slots=Trigger(slot_us=3_141_592))
    found = manualruns.following(wanted, line(), None, whole_seconds=whole_seconds)
    assert list(found) == [slot]
    assert manualruns.left(wanted, line(), slot) == 0
