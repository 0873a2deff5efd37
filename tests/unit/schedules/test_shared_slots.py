"""Which schedules have the slots of others of their text, so that they can be fired together."""

from __future__ import annotations

import tracemalloc

import pytest

from duepoint.schedules import keptexpressions, slots
from duepoint.schedules import rule as rules
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


@pytest.mark.parametrize(
    "text_of",
    [
        lambda number: (f"{number % 60}-59 0-{number % 24} {number % 28 + 1} * *",),
        lambda number: (f"{number % 60} {number // 60} * * *", f"0 0 {number % 28 + 1} * *"),
        lambda number: (f"H/{number % 30 + 1} {number // 60} * * *",),
        lambda number: (f"@every {number + 1}s",),
    ],
    ids=["busy", "several", "hashed", "period"],
)
def test_what_is_kept_of_expressions_is_bounded_by_its_size(text_of, monkeypatch):
    """A tenant may write a new one with each edit, and none of them has to be small."""
    kept = keptexpressions.KeptExpressions(200_000)
    monkeypatch.setattr(slots, "_kept", kept)

    def expression_of(number):
        rule = rules.Rule(timing=rules.Timing(schedules=text_of(number)), policy=rules.Policy())
        return slots.for_rule(
            rule, identity=f"team/{number}", created_us=at("2026-03-01 12:00:00")
        ).expression

    first = expression_of(0)
    assert expression_of(0) is first
    for number in range(1, 1_300):
        expression_of(number)
        assert kept.size_bytes <= 400_000 + 100_000
    assert expression_of(1_299) is expression_of(1_299)


def test_counting_keeps_no_flags_of_days_with_each_expression():
    """Such flags have 86 KB, 16 of them for each expression that a tenant may write."""
    made_us = at("2026-03-01 12:00:00")
    lines = []
    tracemalloc.start()
    try:
        for number in range(30):
            texts = tuple(f"{number} {day} {day} * *" for day in range(1, 21))
            rule = rules.Rule(timing=rules.Timing(schedules=texts))
            line = slots.for_rule(rule, identity="team/a", created_us=made_us)
            assert line.count(made_us, made_us + 365 * 86_400_000_000) == 20 * 12
            lines.append(line)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lines) == 30
    assert kept < 10_000_000
