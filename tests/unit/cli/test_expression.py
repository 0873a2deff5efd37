"""`duepoint next` and `explain`: exact, in order, and clear about what is wrong."""

from __future__ import annotations

import pytest

NEW_YEAR = "2026-01-01T00:00:00Z"


def test_a_slot_is_told_in_utc_and_in_the_zone(duepoint):
    answer = duepoint("next", "30 2 * * *", "--time-zone", "Asia/Kathmandu", "--from", NEW_YEAR)
    assert answer.rows == [
        {"scheduledTime": "2026-01-01T20:45:00Z", "local": "2026-01-02T02:30:00+05:45"}
    ]
    assert answer.code == 0


def test_next_is_strictly_after_and_a_negative_count_strictly_before(duepoint):
    noon = ("0 12 * * *", "--from", "2026-01-05T12:00:00Z", "--count", "2")
    assert duepoint("next", *noon).column("scheduledTime") == [
        "2026-01-06T12:00:00Z",
        "2026-01-07T12:00:00Z",
    ]
    assert duepoint("next", *noon[:-1], "-2").column("scheduledTime") == [
        "2026-01-04T12:00:00Z",
        "2026-01-03T12:00:00Z",
    ]


def test_a_time_without_an_offset_is_in_the_zone(duepoint):
    asked = ("0 * * * *", "--time-zone", "Asia/Tokyo")
    in_the_zone = duepoint("next", *asked, "--from", "2026-01-01 09:00:00")
    assert in_the_zone.rows == duepoint("next", *asked, "--from", "2026-01-01T00:00:00Z").rows
    a_date = duepoint("next", *asked, "--from", "2026-01-01")
    assert a_date.column("local") == ["2026-01-01T01:00:00+09:00"]


BAD_QUESTIONS = [
    (("60 * * * *",), 'minute, column 1: "60" is outside 0-59'),
    (("*/61 * * * *",), 'did you mean "@every 61m"?'),
    (("* * * *",), '"* * * *": has 4 fields'),
    (("",), "the schedule is empty"),
    (("* * * * *\0",), "U+0000"),
    (("* * * * *\nrm",), '"rm" is not understood'),
    (("TZ=UTC * * * * *",), "use the field timeZone"),
    (("x" * 300,), "300 characters"),
    (("@daily", "--time-zone", "Europe/Berln"), 'did you mean "Europe/Berlin"?'),
    (("@daily", "--time-zone", "europe/berlin"), 'write it as "Europe/Berlin"'),
    (("@daily", "--time-zone", "../../etc/passwd"), "--time-zone"),
    (("@daily", "--time-zone", ""), "--time-zone"),
    (("@daily", "--from", "monday"), '--from: "monday" is not a time; write RFC 3339'),
    (("@daily", "--from", "2026-02-30"), "--from"),
    (("@daily", "--from", "2026-01-01T24:00:01Z"), "--from"),
    (("@daily", "--from", "1969-12-31T23:59:59Z"), "1970 to 2112"),
    (("@daily", "--from", "9999-01-01"), "1970 to 2112"),
    (("@daily", "--from", "2026-01-01T00:00:00+25:00"), "there is no offset +25:00"),
    (("@daily", "--identity", "name"), "--identity"),
    (("@daily", "--identity", "a/b/c"), "--identity"),
    (("@daily", "--dst-gap", "Never"), "'RunOnce', 'Skip'"),
    (("@daily", "--dst-overlap", "Third"), "'First', 'Second', 'Both'"),
    (("@every 0s",), "the shortest is 100ms"),
    (("@at 2026-12-24T18:00:00",), "with its zone"),
    (("@fortnightly",), "is not a known macro"),
    (("*", "*", "*", "*", "*"), "put the expression into quotes"),
    ((), "Missing argument 'EXPR'"),
    (("@daily", "--form", "now"), "--form"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD_QUESTIONS)
@pytest.mark.parametrize("command", ["next", "explain"])
def test_a_bad_question_is_one_line_and_exit_code_2(refused, command, arguments, says):
    assert says in refused(command, *arguments)


# -- in plain words ------------------------------------------------------------------------------

ASKED = ("--from", "2026-12-01T00:00:00Z")


@pytest.fixture
def explain(duepoint):
    def run(text, *arguments):
        answer = duepoint("explain", text, *ASKED, *arguments)
        assert (answer.code, answer.err) == (0, "")
        assert (
            duepoint("next", text, *ASKED, *arguments, "-o", "table", "--count", "3").out
            == answer.out
        )
        return answer.out

    return run


def changes(explain, text, zone, *arguments):
    """What is said of each change of the clock."""
    said = explain(text, "--time-zone", zone, *arguments)
    return [line.strip() for line in said.splitlines() if ": clocks " in line]


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        (
            "America/New_York",
            "30 1,2 * * *",
            [
                ("2027-03-14: ", "runs once, at 2027-03-14T03:00:00-04:00 (gap: RunOnce)"),
                ("2027-11-07: ", "at 2027-11-07T01:30:00-04:00 (overlap: First)"),
            ],
        ),
        ("Australia/Lord_Howe", "15 2 * * *", [("2027-10-03: ", "2027-10-03T02:30:00+11:00")]),
        ("Australia/Lord_Howe", "45 1 * * *", [("2027-04-04: ", "2027-04-04T01:45:00+11:00")]),
        ("Africa/Cairo", "0 0 * * *", [("2027-04-30: ", "2027-04-30T01:00:00+03:00")]),
        ("Europe/Berlin", "0 9 * * *", []),
        ("Etc/UTC", "30 2 * * *", []),
        ("Europe/Berlin", "30 2 28 3 *", [("2027-03-28: ", "2027-03-28T03:00:00+02:00")]),
    ],
)
def test_the_next_days_on_which_the_clock_matters_are_named(explain, zone, text, expected):
    said = changes(explain, text, zone)
    assert len(said) == len(expected)
    for line, (day, times) in zip(said, expected, strict=True):
        assert line.startswith(day)
        assert times in line


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
    ("zone", "proposed"),
    [
        ("America/New_York", "@at 2026-12-24T18:00:00-05:00"),
        ("Asia/Kolkata", "@at 2026-12-24T18:00:00+05:30"),
        ("Etc/UTC", "@at 2026-12-24T18:00:00Z"),
    ],
)
def test_an_instant_without_a_zone_is_proposed_in_the_zone_that_was_named(refused, zone, proposed):
    said = refused("next", "@at 2026-12-24T18:00", "--time-zone", zone)
    assert f'did you mean "{proposed}"?' in said


def test_never_is_said_in_words_and_has_no_times(duepoint):
    said = duepoint("next", "@never", *ASKED, "-o", "table")
    assert (said.code, said.err) == (0, "")
    assert "never by itself, only when it is triggered" in said.out
    assert "CronJob: refuses this expression (there is no @never)" in said.out
    assert duepoint("next", "@never", *ASKED).rows == []


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("0 10 * * ? *", 'write "0 10 * * ?"'),
        ("0/15 * * * ? *", 'write "0/15 * * * ?"'),
        ("0 8 1 * ? *", 'write "0 8 1 * ?"'),
        ("0 2 * * * *", 'write "0 2 * * *"'),
        ("15 10 * * * *", 'write "15 10 * * *"'),
        ("*/15 * * * * *", 'write "*/15 * * * *"'),  # every 15 minutes to Nomad
        ("*/15 9-17 * * * *", 'write "*/15 9-17 * * *"'),
        ("0 0 9 1 * MON", "if this is for Spring, where both must"),
        ("0 0 12 ? * 2-6", "names such as MON-FRI mean the same everywhere"),
        ("0 0 12 ? * 6L", "1 is Monday here"),
        ("0 0 12 ? * 2-6 2027-2030", "1 is Monday here"),
    ],
)
def test_a_text_that_means_something_else_in_another_scheduler_has_a_note(explain, text, note):
    assert note in explain(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cron(0 10 * * ? *)", "the last field, which is the year there"),
        ("rate(5 minutes)", 'did you mean "@every 5m"'),
        ("at(2027-01-01T00:00:00)", 'did you mean "@at 2027-01-01T00:00:00"'),
        ("30 seconds", 'did you mean "@every 30s"'),
        ("0 12 $ * *", 'the last day of the month is "L"'),
        ("Mon..Fri 09:00", "a time of day is its minute and its hour"),
        ("*-*-* 04:00:00", "a time of day is its minute and its hour"),
        ("daily", 'did you mean "@daily"'),
        ("15 10 ? * 6L 2022-2023", ""),
        ("0 18 ? * MON-FRI *", ""),
        ("0 0 1 1 ? 2027", ""),
        ("0 0 0 L-3 * *", "they take no ranges"),
    ],
)
def test_a_text_of_another_scheduler_without_a_meaning_here_is_refused(refused, text, hint):
    assert hint in refused("next", text)
