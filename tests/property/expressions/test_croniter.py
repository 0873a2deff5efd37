"""The engine agrees with croniter wherever croniter can be trusted.

It is asked for naive local times only (its own handling of zones fires fixed times twice), and the
forms that it is known to read otherwise are rewritten or left out:

- ``5-5`` means every value there, and ``*/1`` beside the other day field is no star;
- a day field that lists every value collapses to ``*``, which loses the "either one" rule;
- a last weekday is written ``L5``, special and plain weekdays do not mix, ``W`` stands alone.
"""

import datetime as dt
from random import Random

import croniter
import pytest

from duepoint.expressions import compile_expression
from tests.property.expressions import generators

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive local times are the point
LAST = dt.datetime(2099, 1, 1)  # noqa: DTZ001


def rewritten(field, *, high):
    """One field as croniter reads it with the meaning that it has here."""
    items = []
    for item in field.split(","):
        base, _, step = item.partition("/")
        first, _, last = base.partition("-")
        if base in {"*", "?"} and step in {"", "1"}:
            return "*"
        if first == last or (last and value(first) == value(last)):
            items.append(first)
        elif not last and step and base not in {"*", "?"}:
            items.append(first if value(first) == high else f"{first}-{high}/{step}")
        else:
            items.append(item.replace("?", "*") if base == "?" else item)
    return ",".join(items)


def value(word):
    if word.isdecimal():
        return int(word)
    names = generators.MONTHS if word.upper() in generators.MONTHS else generators.WEEKDAYS
    return names.index(word.upper()) + (names is generators.MONTHS)


def for_croniter(sample):
    """The text to hand to croniter, or None where it cannot be asked."""
    january = [dt.date(2024, 1, day) for day in range(1, 32)]
    for field in (sample.day, sample.weekday):
        if not field.starred and all(field.matches(day) for day in january):
            return None
    words = sample.text.split()
    rewritten_words = [
        word if field_is_special(sample, index) else rewritten(word, high=high)
        for index, (word, high) in enumerate(zip(words, (59, 23, 31, 12, 6), strict=True))
    ]
    if "#" in words[4] or words[4].endswith("L"):
        # With these it wants both day fields to match, even when both are restricted.
        if not sample.day.starred:
            return None
        if words[4].endswith("L"):
            rewritten_words[4] = f"L{int(words[4][0]) % 7}"
    if words[2] == "LW" or (words[2].endswith("W") and not sample.weekday.starred):
        return None  # it does not know the one, and forgets the day of week beside the other
    return " ".join(rewritten_words)


def field_is_special(sample, index):
    field = {2: sample.day, 4: sample.weekday}.get(index)
    return field is not None and field.plain is None


def compare(sample, text, start):
    expression = compile_expression(sample.text)
    ours, theirs = (start - EPOCH) // dt.timedelta(microseconds=1), croniter.croniter(text, start)
    for _ in range(4):
        ours = expression.next_after(ours)
        try:
            expected = theirs.get_next(dt.datetime)
        except croniter.CroniterBadDateError:
            expected = None
        if expected is None or expected >= LAST:
            assert ours is None or EPOCH + dt.timedelta(microseconds=ours) >= LAST, sample.text
            return
        assert ours is not None, (sample.text, expected)
        assert EPOCH + dt.timedelta(microseconds=ours) == expected, (sample.text, start)
    back = croniter.croniter(text, EPOCH + dt.timedelta(microseconds=ours))
    for _ in range(3):
        ours = expression.previous_before(ours)
        expected = back.get_prev(dt.datetime)
        assert EPOCH + dt.timedelta(microseconds=ours) == expected, (sample.text, "backwards")


@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
def test_next_and_previous_are_those_of_croniter(special):
    rng, compared = Random(f"croniter {special}"), 0
    wanted = generators.samples(100)
    while compared < wanted:
        sample = generators.sample(rng, special=special)
        text = for_croniter(sample)
        if text is None:
            continue
        start = EPOCH + dt.timedelta(minutes=rng.randint(29 * 525_960, 70 * 525_960))
        compare(sample, text, start)
        compared += 1
