"""What is said of a CronJob around changes of the clock is what its library does.

For zones and changes of half a century, expressions near the change are searched by robfig/cron
from the same second, by `CronJobTimes`, and by `differences`, whose every statement must hold: no
time that it calls left out is run, every one that it adds is, no earlier difference is kept quiet,
and the choice of ``dst`` that it names has the CronJob's times.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from pathlib import Path
from random import Random

import pytest
import tzdata

from duepoint import errors, expressions
from duepoint.cli.cronjob import differences
from duepoint.expressions import expression, syntax, timezones
from tests.property.expressions import generators

pytestmark = pytest.mark.xdist_group("robfig")

FIRST, LAST = 946_684_800, 946_684_800 + 57 * 365 * 86_400  # 2000 to 2056
LONG, SHORT = 400 * 86_400, 60 * 86_400
#: Of 14,000 changes; DUEPOINT_SAMPLES_FACTOR=40 looks at all, DUEPOINT_SAMPLES_SEED=text at others.
WANTED = 400


def samples(rng: Random) -> list[tuple[str, str, int]]:
    """Zone, expression and the second from which both sides search, some time before a change."""
    zones = {}
    for name in sorted(timezones.known_names()):
        zone = timezones.load(name)
        zones.setdefault((zone.starts, zone.offsets), name)
    changes = [
        (name, change)
        for name in zones.values()
        for change in timezones.load(name).changes_after(FIRST)
        if change[0] < LAST
    ]
    chosen = rng.sample(changes, min(len(changes), generators.samples(WANTED)))
    return [sample(rng, name, *change) for name, change in chosen]


def sample(rng: Random, zone: str, start: int, before: int, after: int) -> tuple[str, str, int]:
    low, high = sorted((start + before, start + after))
    local = rng.choice((low, low, high - 60, rng.randrange(low - 3_600, high + 3_600)))
    at = dt.datetime.fromtimestamp(local, dt.UTC)
    minute, hour = str(at.minute), str(at.hour)
    fields = (
        rng.choice((minute, minute, "*/15", "*/20", f"0,{minute}", str(rng.randrange(60)))),
        rng.choice((hour, hour, "*", "*/2", f"{hour},{(at.hour + 7) % 24}", "0", "23")),
        rng.choice(("*", "*", str(at.day), "1", str(rng.randrange(1, 32)), "*/2")),
        rng.choice(("*", "*", "*", str(at.month), str(at.month % 12 + 1))),
        rng.choice(("*", "*", "*", str(at.isoweekday() % 7), "1-5")),
    )
    days = rng.choice((0.4, 1, 3, 20, 40, 200))
    return zone, " ".join(fields), start - int(days * 86_400) - rng.randrange(60)


def library(cronjob, questions):
    """The library's answers, with the rules of the zones that the engine has."""
    os.environ["ZONEINFO"] = str(Path(tzdata.__file__).parent / "zoneinfo")
    try:
        return cronjob([(f"CRON_TZ={zone} {text}", start, n) for zone, text, start, n in questions])
    finally:
        del os.environ["ZONEINFO"]


@pytest.mark.timeout(1800)
def test_the_search_of_the_library_is_followed_around_every_change(cronjob):
    asked = samples(generators.chance("searches"))
    answers = library(cronjob, [(*question, 3) for question in asked])
    for (zone, text, start), theirs in zip(asked, answers, strict=True):
        times = differences.CronJobTimes(syntax.parse(text, identity=""), timezones.load(zone))
        found, second = [], start
        while len(found) < 3 and (second := times.next_after(second)) is not None:
            found.append(second)
        assert found == theirs, (zone, text, start)


@pytest.mark.timeout(1800)
def test_every_statement_about_a_cronjob_around_a_change_is_true(cronjob):
    asked, questions = [], []
    for zone, text, start in samples(generators.chance("statements")):
        try:
            ours = expressions.compile_expression(text, time_zone=zone, from_us=start * 10**6)
        except errors.InvalidExpression:
            continue  # a date that never comes
        is_rare = ours.count_between(start * 10**6, (start + 10**7) * 10**6) < 300
        horizon = start + (LONG if is_rare else SHORT)
        count = ours.count_between(start * 10**6, horizon * 10**6) + 30
        asked.append((zone, text, start, horizon, ours))
        questions.append((zone, text, start, count))
    stated = 0
    for case, answer in zip(asked, library(cronjob, questions), strict=True):
        if answer != sorted(set(answer)):
            continue  # the library comes to the same time again and again
        stated += check(*case, {second for second in answer if second <= case[3]})
    assert stated > len(asked) / 20


def check(zone, text, start, horizon, ours, theirs) -> int:
    def differing(other):
        slots_us = expression.walk(other, start * 10**6, horizon * 10**6)
        return theirs ^ {slot_us // 10**6 for slot_us in slots_us}

    differ, case = differing(ours), (zone, text, start)
    found = differences.differences(text, ours, start * 10**6)
    said = {second for each in found for second in each.left_out + each.added}
    assert {second for second in said if second <= horizon} <= differ, case
    assert not differ or min(differ) in said, case
    for each in found:
        around = each.left_out + each.added
        if each.remedy and max(around) <= horizon:
            choices = dict(re.findall(r"(gap|overlap): (\w+)", each.remedy))
            other = expressions.compile_expression(text, time_zone=zone, **choices)
            left = [s for s in differing(other) if min(around) <= s <= max(around)]
            assert not left, (case, each.remedy)
    return len(found)
