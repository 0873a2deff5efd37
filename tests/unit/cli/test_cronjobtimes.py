"""When a CronJob runs: recorded answers of robfig/cron v3.0.1, and what is told of them."""

from __future__ import annotations

import datetime as dt

import pytest

from duepoint import expressions
from duepoint.cli import instants
from duepoint.cli.cronjob import differences
from duepoint.cli.cronjob.differences import CronJobTimes
from duepoint.expressions import syntax, timezones

# Zone, expression, where the search begins, and the next times; all in UTC. Recorded from
# tests/differential/robfig with "CRON_TZ=<zone> " before the expression, Go 1.26.
RECORDED = [
    (
        "America/New_York",
        "0 2 * * *",
        "2012-03-10T12:00",
        ["2012-03-12T06:00", "2012-03-13T06:00", "2012-03-14T06:00"],
    ),
    (
        "America/New_York",
        "30 2 11 3 *",
        "2012-03-01T00:00",
        ["2013-03-11T06:30", "2014-03-11T06:30", "2015-03-11T06:30"],
    ),
    (
        "America/New_York",
        "0 * * * *",
        "2012-03-11T05:30",
        ["2012-03-11T06:00", "2012-03-11T07:00", "2012-03-11T08:00"],
    ),
    (
        "America/New_York",
        "0 1 * * *",
        "2012-11-04T00:00",
        ["2012-11-04T05:00", "2012-11-04T06:00", "2012-11-05T06:00"],
    ),
    (
        "America/New_York",
        "0 2 * * *",
        "2012-11-04T00:00",
        ["2012-11-04T07:00", "2012-11-05T07:00", "2012-11-06T07:00"],
    ),
    (
        "America/New_York",
        "*/15 * * * *",
        "2012-11-04T05:35",
        ["2012-11-04T05:45", "2012-11-04T06:00", "2012-11-04T06:15"],
    ),
    (
        "America/Sao_Paulo",
        "0 9 10 * *",
        "2018-10-20T00:00",
        ["2018-11-10T11:00", "2018-12-10T11:00", "2019-01-10T11:00"],
    ),
    (
        "America/Sao_Paulo",
        "0 0 * * *",
        "2018-11-02T12:00",
        ["2018-11-03T03:00", "2018-11-05T02:00", "2018-11-06T02:00"],
    ),
    (
        "America/Sao_Paulo",
        "0 0 4 * *",
        "2018-10-20T00:00",
        ["2018-12-04T02:00", "2019-01-04T02:00", "2019-02-04T02:00"],
    ),
    (
        "Australia/Lord_Howe",
        "15 2 * * *",
        "2024-10-04T00:00",
        ["2024-10-04T15:45", "2024-10-06T15:15", "2024-10-07T15:15"],
    ),
    (
        "Australia/Lord_Howe",
        "45 1 * * *",
        "2024-04-05T00:00",
        ["2024-04-05T14:45", "2024-04-06T14:45", "2024-04-06T15:15"],
    ),
    (
        "Africa/Cairo",
        "0 9 26 4 *",
        "2024-04-01T00:00",
        ["2025-04-26T06:00", "2026-04-26T06:00", "2027-04-26T07:00"],
    ),
    (
        "Africa/Cairo",
        "*/20 0,1 26 * *",
        "2024-04-25T00:00",
        ["2024-05-25T21:00", "2024-05-25T21:20", "2024-05-25T21:40"],
    ),
    (
        "Africa/Cairo",
        "0 0 * * *",
        "2024-04-24T12:00",
        ["2024-04-24T22:00", "2024-04-26T21:00", "2024-04-27T21:00"],
    ),
    (
        "Asia/Beirut",
        "59 * 31 * 0",
        "2024-03-30T00:00",
        ["2024-04-06T21:59", "2024-04-06T22:59", "2024-04-06T23:59"],
    ),
    (
        "Pacific/Chatham",
        "59 2 * * 0",
        "2024-04-06T00:00",
        ["2024-04-06T13:14", "2024-04-13T14:14", "2024-04-20T14:14"],
    ),
    (
        "Pacific/Chatham",
        "15,45 2 * * 0",
        "2024-09-28T00:00",
        ["2024-09-28T13:30", "2024-09-28T14:00", "2024-10-05T12:30"],
    ),
]


def moment(text):
    return int(dt.datetime.fromisoformat(f"{text}:00+00:00").timestamp())


def times_of(zone, text):
    return CronJobTimes(syntax.parse(text, identity=""), timezones.load(zone))


@pytest.mark.parametrize(("zone", "text", "begin", "expected"), RECORDED)
def test_times_are_those_of_the_library(zone, text, begin, expected):
    times, second, found = times_of(zone, text), moment(begin), []
    while len(found) < 3 and (second := times.next_after(second)) is not None:
        found.append(second)
    assert found == [moment(each) for each in expected]


def told(zone, text, begin):
    ours = expressions.compile_expression(text, time_zone=zone)
    found = differences.differences(text, ours, moment(begin) * 1_000_000)
    local = instants.LocalTime(zone)
    return [difference.text(local) for difference in found]


@pytest.mark.parametrize(
    ("zone", "text", "begin", "expected"),
    [
        pytest.param(
            "America/Asuncion",
            "0 9 5 10 *",
            "2017-09-20T00:00",
            "does not run at 2017-10-05T09:00:00-03:00",
            id="a month that begins without a midnight is passed over",
        ),
        pytest.param(
            "Australia/Lord_Howe",
            "15 2 * * *",
            "2024-01-01T00:00",
            "does not run on 2024-04-07",
            id="a half hour back leaves a day out",
        ),
    ],
)
def test_times_that_no_choice_of_dst_has_are_told_and_no_choice_is_named(
    zone, text, begin, expected
):
    ours = expressions.compile_expression(text, time_zone=zone)
    first, *_ = differences.differences(text, ours, moment(begin) * 1_000_000)
    assert (first.text(instants.LocalTime(zone)), first.remedy) == (expected, "")


@pytest.mark.parametrize(
    ("text", "remedies"),
    [
        ("30 2 * * *", ["dst: {gap: Skip}", "dst: {overlap: Both}"]),
        ("15 2-4 * * *", ["dst: {gap: Skip}", "dst: {overlap: Both}"]),
    ],
)
def test_the_choice_of_dst_with_the_times_of_the_cronjob_is_named(text, remedies):
    ours = expressions.compile_expression(text, time_zone="Europe/Berlin")
    found = differences.differences(text, ours, moment("2024-01-01T00:00") * 10**6)
    assert [each.remedy for each in found] == remedies
