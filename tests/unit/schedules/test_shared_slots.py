"""Which schedules have the slots of others of their text, so that they can be fired together."""

from __future__ import annotations

import pytest

from duepoint.schedules import rule as rules
from duepoint.schedules import slots
from tests.support.builders import at

HASHED = [
    "H * * * *",
    "0 h(0-7) * * *",
    "H/15 * * * *",
    "5,H(30-40) * * * *",
    "0 0 * * h",
    "\tH 1 * * *",
]
ALIKE = [
    *("* * * * *", "@hourly", "@monthly", "@hourly\n", " @hourly", "@every 1h", "@every 1h30m"),
    *("0 9 * * THU", "0 9 * * mon-thu", "0 9 * MAR THU", "@at 2026-12-24T18:00:00Z"),
]


def timing_of(text):
    return rules.Timing(schedules=(text,))


@pytest.mark.parametrize("text", ALIKE)
def test_a_letter_of_a_name_or_a_length_makes_no_slot_its_schedules_own(text):
    assert slots.is_alike(timing_of(text))
    assert _differ(text) is False


@pytest.mark.parametrize("text", HASHED)
def test_an_h_field_does(text):
    assert not slots.is_alike(timing_of(text))
    assert not slots.are_shared(timing_of(text))
    assert _differ(text) is True


def _differ(text):
    """Whether schedules of one creation time have other slots by their names."""
    created_us = at("2026-03-01 12:00:00")
    rule = rules.Rule(timing=timing_of(text))
    upcoming = {
        tuple(
            slots.for_rule(rule, identity=f"team/s-{n}", created_us=created_us).upcoming(
                created_us, 3
            )
        )
        for n in range(40)
    }
    return len(upcoming) > 1
