"""The examples of the page about when a Schedule runs are what the engine says."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from duepoint.expressions import compile_expression
from tests.property.expressions import walker
from tools.devcluster.state import REPOSITORY

PAGE = (REPOSITORY / "docs" / "explanation" / "when-a-schedule-runs.md").read_text()
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rows(head):
    """The rows of the table that begins so, without code marks."""
    table = PAGE.partition(f"| {head} |")[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in table]


def us(time):
    return (time - EPOCH) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize("row", rows("zone"), ids=lambda row: " ".join(row[:4]))
def test_examples_of_clock_changes(row):
    zone, text, choices, day, expected = row
    choices = dict(re.findall(r"(gap|overlap): (\w+)", choices))
    expression = compile_expression(text, time_zone=zone, **choices)
    midnight = dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC)
    found, at_us = [], us(midnight) - 86_400_000_000
    while (at_us := expression.next_after(at_us)) < us(midnight) + 2 * 86_400_000_000:
        local = walker.local_at(at_us // 1_000_000, zone)
        if local.date().isoformat() == day:
            found.append(f"{local:%H:%M}{local.isoformat()[-6:]}")
    assert ", ".join(found) == expected.replace("none", "")


@pytest.mark.parametrize("row", rows("expression | days"), ids=lambda row: row[0])
def test_examples_of_days(row):
    text, expected, _ = row
    expression = compile_expression(text)
    found, at_us = [], us(dt.datetime(2026, 5, 1, tzinfo=dt.UTC)) - 1
    while (at_us := expression.next_after(at_us)) < us(dt.datetime(2026, 6, 1, tzinfo=dt.UTC)):
        found.append((EPOCH + dt.timedelta(microseconds=at_us)).day)
    assert ", ".join(map(str, found)) == expected


def test_there_are_examples():
    assert len(rows("zone")) >= 15
    assert len(rows("expression | days")) >= 10
