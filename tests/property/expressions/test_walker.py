"""The engine agrees with an oracle that looks at every minute, in zones that are hard."""

import bisect
from random import Random

import pytest

from duepoint.expressions import Gap, Overlap, compile_expression, timezones
from tests.property.expressions import generators, walker

DAY = 86_400
ZONES = (
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Etc/GMT+12",
    "Europe/Dublin",
    "Asia/Gaza",
    "America/Scoresbysund",
    "Africa/Cairo",
    "Pacific/Chatham",
    "Europe/Istanbul",
    "Antarctica/Troll",
    "Etc/UTC",
)
MANY = 50_000
START, END = 1_104_537_600, 2_051_222_400  # 2005 to 2035


def changes(name):
    """The clock changes of the zone between START and END, else any instant."""
    found = [second for second in timezones.load(name).starts if START < second < END]
    return found or [START + 1000 * DAY]


def a_window(rng, name, *, days, step):
    """Some days of the zone, most often around a change of its clock."""
    if rng.random() < 0.85:
        start = rng.choice(changes(name)) - rng.randint(0, int(days * DAY))
    else:
        start = rng.randint(START, END)
    start -= start % step
    return start, start + int(days * DAY)


def compare_with_walker(rng, name, *, days, seconds):
    sample = generators.near_changes(
        rng, special=True, seconds=seconds, year=seconds and rng.random() < 0.5
    )
    start, end = a_window(rng, name, days=days, step=1 if seconds else 60)
    gap, overlap = rng.choice(list(Gap)), rng.choice(list(Overlap))
    expected = walker.slots(sample, name, start, end, gap=gap.value, overlap=overlap.value)
    expression = compile_expression(
        sample.text, time_zone=name, gap=gap, overlap=overlap, identity=generators.IDENTITY
    )
    check(expression, expected, start, end)


def check(expression, expected, start, end):
    """All four questions, over the whole window."""
    found, at_us = [], start * 1_000_000 - 1
    while (at_us := expression.next_after(at_us)) is not None and at_us < end * 1_000_000:
        found.append(at_us // 1_000_000)
    assert found == expected
    back, at_us = [], end * 1_000_000
    while (at_us := expression.previous_before(at_us)) is not None and at_us >= start * 1_000_000:
        back.append(at_us // 1_000_000)
    assert back[::-1] == expected
    assert expression.count_between(start * 1_000_000 - 1, end * 1_000_000 - 1) == len(expected)
    third = start + (end - start) // 3
    part = len(expected) - bisect.bisect_right(expected, third)
    assert expression.count_between(third * 1_000_000, end * 1_000_000 - 1) == part


@pytest.mark.parametrize("name", ZONES)
def test_every_slot_of_a_window_is_found_forwards_backwards_and_by_counting(name):
    rng = Random(name)
    for _ in range(generators.samples(8)):
        compare_with_walker(rng, name, days=1, seconds=False)


@pytest.mark.parametrize("name", ZONES)
def test_seconds_and_years_follow_the_same_rules_as_minutes(name):
    rng = Random(name)
    for _ in range(generators.samples(1)):
        compare_with_walker(rng, name, days=0.1, seconds=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ZONES)
def test_every_slot_of_thirty_years_is_found(name):
    rng, compared = Random(f"decades {name}"), 0
    while compared < generators.samples(1):
        sample = generators.near_changes(rng, special=True, year=rng.random() < 0.2)
        if sample.second and sample.second.values != {0}:
            continue
        gap, overlap = rng.choice(list(Gap)), rng.choice(list(Overlap))
        expected = walker.slots_of_decades(
            sample, name, START, END, gap=gap.value, overlap=overlap.value
        )
        expression = compile_expression(
            sample.text, time_zone=name, gap=gap, overlap=overlap, identity=generators.IDENTITY
        )
        assert expression.count_between(START * 10**6 - 1, END * 10**6 - 1) == len(expected)
        if len(expected) < MANY:
            check(expression, expected, START, END)
        else:
            spot_check(rng, expression, expected)
        compared += 1


def spot_check(rng, expression, expected):
    """Next and previous of some instants of decades full of slots."""
    for _ in range(3_000):
        at = rng.randint(expected[0] + 1, expected[-1] - 1)
        index = bisect.bisect_right(expected, at)
        assert expression.next_after(at * 1_000_000) == expected[index] * 1_000_000
        assert expression.previous_before(at * 1_000_000 + 1) == expected[index - 1] * 1_000_000


def test_both_walkers_agree_on_the_days_of_changes():
    rng = Random("walkers")
    for name in ZONES:
        sample = generators.near_changes(rng, special=True)
        gap, overlap = rng.choice(("RunOnce", "Skip")), rng.choice(("First", "Second", "Both"))
        start = rng.choice(changes(name)) // DAY * DAY - DAY
        both = [
            walk(sample, name, start, start + 3 * DAY, gap=gap, overlap=overlap)
            for walk in (walker.slots, walker.slots_of_decades)
        ]
        assert both[0] == both[1], (name, sample.text)


@pytest.mark.parametrize("name", ZONES)
def test_next_and_previous_are_inverse_over_decades(name):
    rng = Random(name)
    for _ in range(generators.samples(15)):
        sample = generators.sample(rng, special=True)
        expression = compile_expression(
            sample.text,
            time_zone=name,
            gap=rng.choice(list(Gap)),
            overlap=rng.choice(list(Overlap)),
        )
        instant_us = rng.randint(START, END) * 1_000_000 + rng.randint(0, 999_999)
        first_us = expression.next_after(instant_us)
        if first_us is None:
            continue
        second_us = expression.next_after(first_us)
        assert expression.previous_before(first_us + 1) == first_us
        if second_us is not None:
            assert expression.previous_before(second_us) == first_us
            assert expression.count_between(instant_us, second_us) == 2
