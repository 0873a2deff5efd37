"""The engine agrees with croniter wherever croniter can be trusted.

It is asked for naive local times only (its own handling of zones fires fixed times twice), and the
forms that it is known to read otherwise are rewritten or left out. DIFFERENT and REFUSED_THERE
list them, each with both answers:

- ``5-5`` means every value there, and ``*/1`` beside the other day field is no star;
- a day field that lists every value collapses to ``*`` in some company, which loses the rule that
  either one may match; beside ``#`` and ``L5`` both have to match;
- a last weekday is written ``L5``, special and plain weekdays do not mix, ``W`` stands alone.
"""

import datetime as dt
import zoneinfo
from random import Random

import croniter
import pytest

from duepoint import errors
from duepoint.expressions import compile_expression
from tests.property.expressions import generators

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive local times are the point
LAST = dt.datetime(2099, 1, 1)  # noqa: DTZ001


MAY = list(range(1, 32))
MONDAYS = [4, 11, 18, 25]

DIFFERENT = [
    # May 2026 begins on a Friday. (text, days here, days there)
    pytest.param("0 0 5-5 * *", [5], MAY, id="a-range-of-one-value"),
    pytest.param("0 0 */1 * MON", MONDAYS, MAY, id="a-star-by-one-is-a-star-in-cronjob"),
    pytest.param("0 0 15W * MON", [*MONDAYS, 15], [15], id="w-forgets-the-day-of-week"),
    pytest.param("0 0 1 * 1#2", [1, 11], [], id="both-day-fields-beside-a-second-monday"),
    pytest.param("0 0 * * 5-5", [1, 8, 15, 22, 29], MAY, id="a-range-of-one-weekday"),
]

REFUSED_THERE = ["0 0 LW * *", "0 0 * * 5L", "0 0 * * 1#2,5", "0 0 0 1 1 * 2026"]


def days_of_may(text, step):
    at, found = dt.datetime(2026, 4, 30, 12), []  # noqa: DTZ001
    while (at := step(text, at)) is not None and at.month == 5:
        found.append(at.day)
    return found


def step_here(text, at):
    us = compile_expression(text).next_after((at - EPOCH) // dt.timedelta(microseconds=1))
    return None if us is None else EPOCH + dt.timedelta(microseconds=us)


def step_there(text, at):
    try:
        return croniter.croniter(text, at).get_next(dt.datetime)
    except croniter.CroniterBadDateError:
        return None


@pytest.mark.parametrize(("text", "here", "there"), DIFFERENT)
def test_where_both_know_a_form_and_mean_different_things(text, here, there):
    assert days_of_may(text, step_here) == sorted(here)
    assert days_of_may(text, step_there) == there


@pytest.mark.parametrize("text", REFUSED_THERE)
def test_forms_that_are_known_here_only(text):
    compile_expression(text)
    with pytest.raises(croniter.CroniterError):
        croniter.croniter(text, EPOCH)


def test_steps_beyond_the_field_and_random_values_are_refused_here_and_taken_there():
    for text in ("*/61 * * * *", "R * * * *"):
        croniter.croniter(text, EPOCH)
        with pytest.raises(errors.InvalidExpression):
            compile_expression(text)


def test_a_fixed_time_in_the_overlap_runs_once_here_and_twice_there():
    zone = zoneinfo.ZoneInfo("America/New_York")
    there = croniter.croniter("30 1 * * *", dt.datetime(2026, 11, 1, tzinfo=zone))
    days = [there.get_next(dt.datetime).day for _ in range(3)]
    assert days == [1, 1, 2]
    here = compile_expression("30 1 * * *", time_zone="America/New_York")
    begin_us = int(dt.datetime(2026, 11, 1, tzinfo=zone).timestamp()) * 1_000_000
    assert here.count_between(begin_us, begin_us + 36 * 3_600_000_000) == 2


def test_hashed_fields_reach_every_minute_of_the_day_here_and_a_sixth_of_them_there():
    def minutes_there(name):
        fields = croniter.croniter("H H * * *", EPOCH, hash_id=name).expanded
        return fields[1][0], fields[0][0]

    def minutes_here(name):
        us = compile_expression("H H * * *", identity=name).next_after(0)
        return divmod(us // 60_000_000 % 1_440, 60)

    names = [f"prod/job-{number}" for number in range(5_000)]
    assert len({minutes_there(name) for name in names}) <= 240
    assert len({minutes_here(name) for name in names}) >= 1_350


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
    wanted = generators.samples(400)
    while compared < wanted:
        sample = generators.sample(rng, special=special)
        text = for_croniter(sample)
        if text is None:
            continue
        start = EPOCH + dt.timedelta(minutes=rng.randint(29 * 525_960, 70 * 525_960))
        compare(sample, text, start)
        compared += 1
