"""What nobody should be able to write, and what they are told instead."""

import pytest

from duepoint import errors
from duepoint.expressions import compile_expression
from tests.unit.expressions import stopwatch

NOW_US = 1_790_000_000_000_000


def error_of(text, **options):
    with pytest.raises(errors.InvalidExpression) as caught:
        compile_expression(text, from_us=NOW_US, **options)
    return caught.value


@pytest.mark.parametrize(
    ("text", "field", "position", "told"),
    [
        pytest.param("", None, None, "empty", id="empty"),
        pytest.param("   ", None, None, "empty", id="blanks-only"),
        pytest.param("0 0 * *", None, 7, "has 4 fields; write 5", id="four-fields"),
        pytest.param("0", None, 1, "has 1 field; write 5", id="one-field"),
        pytest.param("0 0 0 * * * * *", None, 14, "has 8 fields", id="eight-fields"),
        pytest.param("60 * * * *", "minute", 0, '"60" is outside 0-59', id="minute-60"),
        pytest.param("* 24 * * *", "hour", 2, "count from 0 to 23", id="hour-24"),
        pytest.param("* * 0 * *", "day-of-month", 4, "outside 1-31", id="day-0"),
        pytest.param("* * 32 * *", "day-of-month", 4, "outside 1-31", id="day-32"),
        pytest.param("* * * 13 *", "month", 6, "outside 1-12", id="month-13"),
        pytest.param("* * * * 8", "day-of-week", 8, "outside 0-7", id="weekday-8"),
        pytest.param("30 2 * * ? 2027", "day-of-week", 11, "a year is the last", id="a-sixth-year"),
        pytest.param("0 0 0 1 1 * 1969", "year", 12, "outside 1970-2099", id="year-1969"),
        pytest.param("0 0 0 1 1 * 2100", "year", 12, "outside 1970-2099", id="year-2100"),
        pytest.param("*/0 * * * *", "minute", 2, "a step cannot be 0", id="step-0"),
        pytest.param("0 5-3 * * *", "hour", 2, 'write "3-5"', id="downward"),
        pytest.param("5--5 * * * *", "minute", 0, "cannot be negative", id="two-hyphens"),
        pytest.param("-5 * * * *", "minute", 0, "cannot be negative", id="negative"),
        pytest.param("*/-1 * * * *", "minute", 0, "cannot be negative", id="negative-step"),
        pytest.param("++5 * * * *", "minute", 0, "not understood", id="two-plus-signs"),
        pytest.param("* * * * +MON", "day-of-week", 8, "not understood", id="plus-and-a-name"),
        pytest.param("0 ,, * * *", "hour", 2, 'write "*" for every hour', id="only-commas"),
        pytest.param("*-5 * * * *", "minute", 0, '"*" is every value', id="star-in-a-range"),
        pytest.param("1/ * * * *", "minute", 0, "not understood", id="missing-step"),
        pytest.param("1-2-3 * * * *", "minute", 0, "not understood", id="two-ranges"),
        pytest.param("1/2/3 * * * *", "minute", 0, "not understood", id="two-steps"),
        pytest.param(
            "* * * * mon-xyz", "day-of-week", 12, '"xyz" is not a name', id="unknown-name"
        ),
        pytest.param("* * * * monday", "day-of-week", 8, 'write "MON"', id="long-name"),
        pytest.param("* MON * * *", "hour", 2, "takes numbers 0-23", id="name-in-a-number-field"),
        pytest.param("* * * * 5-0", "day-of-week", 8, "runs downward", id="numbers-never-wrap"),
        pytest.param("@unknown", None, 0, "known are @yearly", id="unknown-macro"),
        pytest.param("@reboot", None, 0, "nothing boots here", id="reboot"),
        pytest.param("@daily 5", None, 0, "not a known macro", id="macro-with-more"),
        pytest.param("\u0665 * * * *", None, 0, "U+0665", id="arabic-digit"),
        pytest.param("\uff10 * * * *", None, 0, "U+FF10", id="full-width-digit"),
        pytest.param("0 \u200f* * * *", None, 2, "U+200F", id="right-to-left-mark"),
        pytest.param("0 0 \x00 * *", None, 4, "U+0000", id="nul"),
        pytest.param("0 0 *\n61 *", "month", 6, "outside 1-12", id="behind-a-line-end"),
        pytest.param("@Hourly", None, 0, "in lower case", id="macro-in-capitals"),
        pytest.param("@EVERY 5m", None, 0, 'did you mean "@every 5m"', id="every-in-capitals"),
        pytest.param("0\u00a00 * * *", None, 1, "U+00A0", id="no-break-space"),
        pytest.param("0 0 * * *" + " " * 191 + "*", None, None, "201 characters", id="201-chars"),
        pytest.param(",".join(["1"] * 10_000) + " * * * *", None, None, "limit is 200", id="huge"),
        pytest.param("*/61 * * * *", "minute", 2, '"@every 61m"', id="step-61"),
        pytest.param("0 */25 * * *", "hour", 4, '"@every 25h"', id="step-25"),
        pytest.param("0 0 * */13 *", "month", 8, "largest step here is 12", id="step-13"),
        pytest.param("TZ=UTC 0 0 * * *", None, 0, "timeZone", id="tz-prefix"),
        pytest.param("CRON_TZ=UTC 0 0 * * *", None, 0, "timeZone", id="cron-tz-prefix"),
        pytest.param("TZ=0 0 * * *", None, 0, "timeZone", id="tz-prefix-without-blank"),
        pytest.param("0 0 L-3 * *", "day-of-month", 4, "no ranges", id="days-before-the-last"),
        pytest.param("0 0 1-5W * *", "day-of-month", 4, "no ranges", id="range-of-workdays"),
        pytest.param("0 0 L/2 * *", "day-of-month", 4, "no ranges", id="stepped-last-day"),
        pytest.param("0 0 32W * *", "day-of-month", 4, "outside 1-31", id="workday-32"),
        pytest.param("L 0 * * *", "minute", 0, "day-of-month", id="last-minute"),
        pytest.param("0 0 5L * *", "day-of-month", 4, "5L and 1#2 in day-of-week", id="misplaced"),
        pytest.param("0 0 * * L", "day-of-week", 8, '"SAT"', id="last-weekday-of-what"),
        pytest.param("0 0 * * L5", "day-of-week", 8, 'such as "5L"', id="the-other-way-round"),
        pytest.param("0 0 * * 1#6", "day-of-week", 10, "at most five times", id="sixth-monday"),
        pytest.param("0 0 * * 1#0", "day-of-week", 10, "at most five times", id="zeroth-monday"),
        pytest.param("0 0 * * 15W", "day-of-week", 8, "alone in day-of-month", id="weekday-w"),
        pytest.param("H(30-10) * * * *", "minute", 0, 'write "10-30"', id="empty-hash-range"),
        pytest.param("H(0-60) * * * *", "minute", 4, "outside 0-59", id="hash-range-too-wide"),
        pytest.param("H() * * * *", "minute", 0, "not understood", id="hash-without-range"),
        pytest.param("H/61 * * * *", "minute", 2, "larger than the field", id="hash-step-61"),
        pytest.param("0 0 0 1 1 * H", "year", 12, "list the years", id="hashed-year"),
        pytest.param("R * * * *", "minute", 0, "write H", id="random"),
        pytest.param("R(0-5) * * * *", "minute", 0, "write H", id="random-range"),
    ],
)
def test_a_bad_text_is_told_with_its_place_and_a_hint(text, field, position, told):
    error = error_of(text)
    assert not error.never_fires
    assert (error.field, error.position) == (field, position)
    assert told in str(error)
    if field:
        assert f"{field}, column {position + 1}" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 31 2 *",
        "0 0 30 feb *",
        "0 0 31 4,6,9,11 *",
        "59 23 31 2 *",
        "0 0 0 29 2 * 2025-2027",
        "0 0 0 29 2 * 2099",
        "0 0 ? 2 1#5",  # 2044 is the next February with five Mondays
    ],
)
def test_a_date_that_never_comes_is_found_out_quickly(text):
    with stopwatch.cpu_seconds() as passed:
        error = error_of(text)
        taken = passed()
    assert error.never_fires
    assert "no time in" in str(error)
    # The bar is 5 ms on a quiet machine; CPU time grows when others use the caches.
    assert taken <= 0.02


def test_a_gap_that_always_swallows_the_only_time_never_fires():
    options = {"time_zone": "America/New_York", "gap": "Skip"}
    assert error_of("30 2 ? 3 0#2", **options).never_fires
    compile_expression("30 2 ? 3 0#2", from_us=NOW_US, time_zone="America/New_York")


@pytest.mark.parametrize(
    "text",
    [
        "0 0 29 2 *",
        "0 0 29 2 1#5",  # either one matches
        "0 0 31 2 1",
        "0 0 31W 2 *",
        "0 0 0 1 1 * 2020",  # over, which is another thing than never
        "@at 2020-01-01T00:00:00Z",
    ],
)
def test_a_rare_or_past_date_is_accepted(text):
    compile_expression(text, from_us=NOW_US)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("@every", "missing", id="without-value"),
        pytest.param("@every 0s", "shortest is 100ms", id="zero"),
        pytest.param("@every 0", "shortest is 100ms", id="bare-zero"),
        pytest.param("@every 99ms", "shortest is 100ms", id="too-short"),
        pytest.param("@every -5m", "sign", id="negative"),
        pytest.param("@every 1ns", "too fine", id="nanosecond"),
        pytest.param("@every 100.5ms", "milliseconds", id="half-a-millisecond"),
        pytest.param("@every 5", "without a unit", id="no-unit"),
        pytest.param("@every 5x", "unknown unit", id="bad-unit"),
        pytest.param("@every 1h 30m", "not a duration", id="blank-inside"),
        pytest.param("@every h", "not a duration", id="no-number"),
        pytest.param("@every 1e3s", "exponent", id="exponent"),
        pytest.param("@every 1e9h", "exponent", id="huge-exponent"),
        pytest.param("@every 1000000000h", "2112", id="huge"),
        pytest.param("@every " + "9" * 150 + "h", "longer", id="150-digits"),
        pytest.param("@at", "missing", id="at-nothing"),
        pytest.param("@at tomorrow", "not an instant", id="at-words"),
        pytest.param("@at 2026-12-24T18:00:00", "zone", id="at-without-zone"),
        pytest.param("@at 2026-12-24", "not an instant", id="at-a-date"),
        pytest.param("@at 2026-02-30T00:00:00Z", "exist", id="february-30"),
        pytest.param("@at 2026-01-01T24:00:01Z", "exist", id="hour-24"),
        pytest.param("@at 2026-12-31T23:59:60Z", "exist", id="leap-second"),
        pytest.param("@at 2026-01-01T00:00:00+25:00", "zone", id="offset-25"),
        pytest.param("@at 2113-01-01T00:00:00Z", "1970 to 2112", id="2113"),
        pytest.param("@at 9999-12-31T00:00:00Z", "1970 to 2112", id="9999"),
        pytest.param("@at 10000-01-01T00:00:00Z", "1970 to 2112", id="10000"),
        pytest.param("@at 1969-12-31T23:59:59Z", "1970 to 2112", id="1969"),
        pytest.param("@at 4503599628", "1970 to 2112", id="beyond-2-to-the-52"),
        pytest.param("@at " + "9" * 150, "1970 to 2112", id="at-150-digits"),
    ],
)
def test_a_bad_period_or_instant_is_told(text, told):
    error = error_of(text)
    assert not error.never_fires
    assert told in str(error)


@pytest.mark.parametrize(
    "text", ["@every 500ms", "@every 1s500ms", "@every 100ms", "@at 2026-12-24T18:00:00.5Z"]
)
def test_a_job_template_needs_whole_seconds(text):
    assert not error_of(text, whole_seconds=True).never_fires
    compile_expression(text, whole_seconds=False)


@pytest.mark.parametrize(
    "zone",
    [
        *("", "Local", "localtime", "Factory", "../../etc/passwd", "/etc/localtime"),
        *(
            "est5edt",
            "europe/rome",
            "Mars/Olympus",
            "Etc/UTC ",
            "UTC+25:00",
            "posix/UTC",
            "a" * 999,
        ),
        *("zone1970.tab", "Europe", "\x00"),
    ],
)
def test_a_zone_outside_the_list_is_unknown_for_every_form(zone):
    for text in ("0 0 * * *", "@every 5m", "@at 1798135200"):
        error = error_of(text, time_zone=zone)
        assert error.field == "timeZone"
        assert len(str(error)) < 400
