"""The engine agrees with cronsim, Debian's rules in Python, but for a list of differences.

cronsim is asked for naive local times only: what Debian's cron does at a clock change is another
thing than what ``dst`` says. It knows no ``?``, no wrapping ranges and no ``W`` but ``LW``; these
are not asked. Where both know a form and mean different things, CronJob's meaning decides; such
forms are listed in DIFFERENT, each with both answers, and left out of the random comparison.
"""

import datetime as dt
import re
from random import Random

import cronsim
import pytest

from duepoint import errors
from duepoint.expressions import compile_expression
from tests.property.expressions import generators

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive local times are the point
LAST = dt.datetime(2099, 1, 1)  # noqa: DTZ001

DIFFERENT = [
    # May 2026 begins on a Friday. (text, days here, days there, why)
    pytest.param(
        *("0 0 */15 * MON", [1, 4, 11, 16, 18, 25, 31], []),
        id="a-stepped-star-restricts-as-in-cronjob-and-is-a-star-in-debian",
    ),
    pytest.param(
        *("0 0 */2 * 0-6", list(range(1, 32)), list(range(1, 32, 2))),
        id="so-does-one-beside-a-full-range",
    ),
    pytest.param(
        *("0 0 1,* * MON", [4, 11, 18, 25], list(range(1, 32))),
        id="a-star-anywhere-in-a-list-is-a-star-in-cronjob-and-only-at-its-beginning-in-debian",
    ),
    pytest.param(
        *(
            "0 0 * * 1/3",
            [4, 7, 11, 14, 18, 21, 25, 28],
            [3, 4, 7, 10, 11, 14, 17, 18, 21, 24, 25, 28, 31],
        ),
        id="from-monday-by-three-ends-on-saturday-and-there-on-a-second-sunday",
    ),
    pytest.param(
        *("0 0 5-5/10 * *", [5], [5, 15, 25]),
        id="a-range-of-one-value-with-a-step-is-that-value-and-runs-on-there",
    ),
]


def days_of_may(slots):
    return [slot.day for slot in slots if (slot.year, slot.month) == (2026, 5)]


@pytest.mark.parametrize(("text", "here", "there"), DIFFERENT)
def test_where_both_know_a_form_and_mean_different_things(text, here, there):
    begin = dt.datetime(2026, 4, 30, 12)  # noqa: DTZ001
    assert days_of_may(ours(text, begin, 40)) == here
    assert days_of_may(theirs(text, begin, 40)) == there


@pytest.mark.parametrize(
    "text", ["*/61 * * * *", "0 */25 * * *", "0 0 */32 * *"], ids=["minute", "hour", "day"]
)
def test_a_step_beyond_the_field_is_refused_here_and_taken_there(text):
    next(cronsim.CronSim(text, EPOCH))
    with pytest.raises(errors.InvalidExpression):
        compile_expression(text)


@pytest.mark.parametrize(
    "text", ["? * * * *", "0 0 * * FRI-MON", "0 0 15W * *", "H * * * *", "0 0 0 1 1 * 2026"]
)
def test_forms_that_are_known_here_only(text):
    compile_expression(text)
    with pytest.raises(cronsim.CronSimError):
        cronsim.CronSim(text, EPOCH)


def ours(text, start, count, *, reverse=False):
    expression, found = compile_expression(text), []
    step = expression.previous_before if reverse else expression.next_after
    at_us = (start - EPOCH) // dt.timedelta(microseconds=1)
    while len(found) < count and (at_us := step(at_us)) is not None:
        found.append(EPOCH + dt.timedelta(microseconds=at_us))
    return found


def theirs(text, start, count, *, reverse=False):
    found = []
    try:
        for slot in cronsim.CronSim(text, start, reverse=reverse):
            found.append(slot)
            if len(found) == count:
                break
    except cronsim.CronSimError:
        pass  # a date that never comes, found out beforehand
    return found


def can_be_asked(sample):
    """Whether both mean the same, or would if cronsim knew the form; see DIFFERENT."""
    day, weekday = sample.text.split()[-3], sample.text.split()[-1]
    if "?" in sample.text or re.search(r"\dW|[A-Z]{3}-[a-z]{3}", sample.text):
        return False
    one_with_step = r"(?:^|[\s,])0*(\w+)-0*\1/"
    if re.search(one_with_step, sample.text, re.IGNORECASE) or re.search(
        r"[A-Za-z]{3}-\d+/|\d-[A-Za-z]{3}/", sample.text
    ):
        return False
    starred = sample.day.starred, sample.weekday.starred
    stars = day.startswith("*"), weekday.startswith("*")
    if any(starred) != any(stars):
        return False
    return not re.search(r"(?:^|,)[0-9A-Za-z]+/", weekday)


@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
def test_next_and_previous_are_those_of_cronsim(special):
    rng, compared = Random(f"cronsim {special}"), 0
    while compared < generators.samples(1_500):
        sample = generators.sample(rng, special=special, seconds=rng.random() < 0.2)
        if not can_be_asked(sample):
            continue
        start = EPOCH + dt.timedelta(minutes=rng.randint(29 * 525_960, 60 * 525_960))
        for reverse in (False, True):
            # It gives up after 50 years without a slot, and the engine at the end of its calendar.
            found = [slot for slot in ours(sample.text, start, 3, reverse=reverse) if slot < LAST]
            expected = theirs(sample.text, start, 3, reverse=reverse)
            expected = [slot for slot in expected if EPOCH <= slot < LAST]
            assert found == expected, (sample.text, start, reverse)
        compared += 1
