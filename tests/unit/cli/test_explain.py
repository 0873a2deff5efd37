"""`duepoint explain`: plain words, the special days, and the CronJob's side."""

from __future__ import annotations

import pytest

ASKED = ("--from", "2026-12-01T00:00:00Z")


@pytest.fixture
def explain(duepoint):
    def run(text, *arguments):
        answer = duepoint("explain", text, *ASKED, *arguments)
        assert (answer.code, answer.err) == (0, "")
        return answer.out

    return run


def changes(duepoint, text, zone, *arguments):
    """Date and behaviour of each change of the clock, and its slots."""
    answer = duepoint("explain", text, "--time-zone", zone, "-o", "json", *ASKED, *arguments)
    (told,) = answer.rows
    return [
        (each["date"], each["kind"], each["behaviour"], each["scheduledTimes"])
        for each in told["clockChanges"]
        if "date" in each
    ]


def test_the_words_name_the_times_the_zone_and_the_next_slots(explain):
    said = explain("30 2 * * 1-5", "--time-zone", "Europe/Rome")
    assert "at 02:30 on Monday to Friday, Europe/Rome" in said
    assert "next 2026-12-01T01:30:00Z  2026-12-01T02:30:00+01:00" in said


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        (
            "America/New_York",
            "30 1,2 * * *",
            [
                ("2027-03-14", "Gap", "RunOnce", ["2027-03-14T07:00:00Z"]),
                ("2027-11-07", "Overlap", "First", ["2027-11-07T05:30:00Z"]),
            ],
        ),
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            [("2027-10-03", "Gap", "RunOnce", ["2027-10-02T15:30:00Z"])],
        ),
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            [("2027-04-04", "Overlap", "First", ["2027-04-03T14:45:00Z"])],
        ),
        (
            "Africa/Cairo",
            "0 0 * * *",
            [("2027-04-30", "Gap", "RunOnce", ["2027-04-29T22:00:00Z"])],
        ),
        ("Europe/Berlin", "0 9 * * *", []),
        ("Etc/UTC", "30 2 * * *", []),
        (
            "Europe/Berlin",
            "30 2 28 3 *",
            [("2027-03-28", "Gap", "RunOnce", ["2027-03-28T01:00:00Z"])],
        ),
    ],
)
def test_the_next_days_on_which_the_clock_matters_are_named(duepoint, zone, text, expected):
    assert changes(duepoint, text, zone) == expected


def test_the_choices_decide_what_is_said(duepoint, explain):
    text, zone = "30 2 * * *", "Europe/Berlin"
    options = ("--dst-gap", "Skip", "--dst-overlap", "Both")
    assert changes(duepoint, text, zone, *options) == [
        ("2027-03-28", "Gap", "Skip", []),
        ("2027-10-31", "Overlap", "Both", ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z"]),
    ]
    said = explain(text, "--time-zone", zone, *options)
    assert "02:30 does not exist; it does not run for them (gap: Skip)" in said
    assert "CronJob: runs at the same times" in said


def test_a_rhythm_goes_on_through_the_changes(explain):
    said = explain("*/15 * * * *", "--time-zone", "America/New_York")
    assert "Its rhythm goes on through changes of the clock" in said
    assert "goes on from 2027-03-14T01:45:00-05:00 to 2027-03-14T03:00:00-04:00" in said
    assert "01:00, 01:15, 01:30 and 01:45 come twice; it runs at each of them" in said
    assert "CronJob: runs at the same times" in said


def test_where_the_clocks_stay_it_says_so(explain):
    assert "The clocks of Asia/Tokyo do not change." in explain(
        "30 2 * * *", "--time-zone", "Asia/Tokyo"
    )
    assert "takes no notice of daylight saving" in explain("@every 5m")


def test_what_a_cronjob_does_otherwise_is_said(explain):
    said = explain("30 2 * * *", "--time-zone", "Europe/Berlin")
    assert "CronJob: does not run on 2027-03-28" in said
    assert "CronJob: runs also at 02:30:00+01:00 on 2027-10-31" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 0 L * *", "day-of-month L"),
        ("0 0 * * 5#2", "day-of-week 5#2"),
        ("0 0 * * 7", "day-of-week 7: it writes Sunday as 0"),
        ("0 0 * * FRI-MON", "day-of-week FRI-MON: its ranges do not wrap"),
        ("0 0 0 * * *", "6 fields instead of 5"),
        ("0 0 0 1 1 * 2030", "7 fields instead of 5"),
        ("@at 2030-01-01T00:00:00Z", "there is no @at"),
    ],
)
def test_what_a_cronjob_refuses_is_said(explain, text, why):
    assert f"CronJob: refuses this expression ({why}" in explain(text)


@pytest.mark.parametrize(
    "text", ["*/5 * * * *", "0 0 1-7 JAN,DEC mon-fri", "@daily", "0,30 ? * * ?"]
)
def test_what_a_cronjob_takes_is_not_called_refused(explain, text):
    assert "CronJob: runs at the same times" in explain(text)


def test_an_expression_without_times_is_told_and_has_exit_code_1(duepoint):
    answer = duepoint("explain", "0 0 31 2 *", *ASKED)
    assert answer.code == 1
    assert "has no slot" in answer.err
    assert "at 00:00 on day 31 of the month in February" in answer.out
