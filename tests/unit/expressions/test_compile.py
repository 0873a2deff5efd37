"""The entry of the engine: each form gives an expression, shared where it may be."""

import pytest

from duepoint.expressions import compile_expression
from tests.unit.expressions import moments


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("30 2 * * *", "2026-01-02T02:30:00Z", id="five-fields"),
        pytest.param("15 30 2 * * *", "2026-01-02T02:30:15Z", id="six-fields-have-seconds-first"),
        pytest.param("15 30 2 * * * 2028", "2028-01-01T02:30:15Z", id="seven-fields-have-a-year"),
        pytest.param("0 0 9 * * MON 2027/2", "2027-01-04T09:00:00Z", id="years-by-step"),
        pytest.param("@yearly", "2027-01-01T00:00:00Z", id="yearly"),
        pytest.param("@annually", "2027-01-01T00:00:00Z", id="annually"),
        pytest.param("@monthly", "2026-02-01T00:00:00Z", id="monthly"),
        pytest.param("@weekly", "2026-01-04T00:00:00Z", id="weekly"),
        pytest.param("@daily", "2026-01-02T00:00:00Z", id="daily"),
        pytest.param("@midnight", "2026-01-02T00:00:00Z", id="midnight"),
        pytest.param("@hourly", "2026-01-01T13:00:00Z", id="hourly"),
        pytest.param("@every 1h30m", "2026-01-01T13:30:00Z", id="every-from-the-epoch"),
        pytest.param("@at 2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z", id="at"),
        pytest.param("@at 1798135200", "2026-12-24T18:00:00Z", id="at-in-unix-seconds"),
        pytest.param("@at 2026-12-24T19:00:00+01:00", "2026-12-24T18:00:00Z", id="at-with-offset"),
        pytest.param(" \t30  2\t* * * \n", "2026-01-02T02:30:00Z", id="blanks-and-tabs-separate"),
        pytest.param("0 0 * * 7", "2026-01-04T00:00:00Z", id="seven-is-sunday"),
        pytest.param("0 0 * * 0", "2026-01-04T00:00:00Z", id="zero-is-sunday"),
        pytest.param("0 0 * * 5-7", "2026-01-02T00:00:00Z", id="friday-to-seven"),
        pytest.param("0 0 * nov-FEB fri-Mon", "2026-01-02T00:00:00Z", id="ranges-of-names-wrap"),
        pytest.param("5-5 * * * *", "2026-01-01T12:05:00Z", id="a-range-of-one-value"),
        pytest.param("7/20 * * * *", "2026-01-01T12:07:00Z", id="from-seven-to-the-end-by-20"),
        pytest.param("*/60 * * * *", "2026-01-01T13:00:00Z", id="a-step-as-large-as-the-field"),
        pytest.param("00000000005 * * * *", "2026-01-01T12:05:00Z", id="leading-zeros"),
        pytest.param("? ? ? ? ?", "2026-01-01T12:01:00Z", id="question-marks-are-stars"),
        pytest.param("00 007 * * *", "2026-01-02T07:00:00Z", id="three-digits-of-an-hour"),
        pytest.param("+5 +1-+3/+2 * * *", "2026-01-02T01:05:00Z", id="plus-signs"),
        pytest.param("1,,2 * * * *", "2026-01-01T12:01:00Z", id="an-empty-item-counts-nothing"),
        pytest.param(",7 8, * * *", "2026-01-02T08:07:00Z", id="commas-around-a-list"),
        pytest.param("30 2 * * *\n", "2026-01-02T02:30:00Z", id="a-line-end-behind"),
        pytest.param("\r\n30 2\n* *\v*\f", "2026-01-02T02:30:00Z", id="any-ascii-white-space"),
        pytest.param("@daily\n", "2026-01-02T00:00:00Z", id="a-macro-and-a-line-end"),
        pytest.param("@every\t90m\n", "2026-01-01T13:30:00Z", id="every-and-a-line-end"),
        pytest.param("@at\n1798135200\n", "2026-12-24T18:00:00Z", id="at-and-line-ends"),
        pytest.param("0 0 * * fri-1", "2026-01-02T00:00:00Z", id="a-range-with-one-name-wraps"),
        pytest.param("0 0 1 nov-2 *", "2026-02-01T00:00:00Z", id="so-does-one-of-months"),
    ],
)
def test_each_form_names_its_slots(text, first):
    found = moments.next_times(compile_expression(text), "2026-01-01T12:00:00Z", 1)
    assert found == [first]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        pytest.param("0 0 15 * MON", [1, 8, 15, 22, 29], id="both-restricted-either-matches"),
        pytest.param("0 0 */15 * MON", [1, 8, 15, 16, 22, 29, 31], id="a-stepped-star-restricts"),
        pytest.param("0 0 */1 * MON", [1, 8, 15, 22, 29], id="a-star-by-one-does-not"),
        pytest.param("0 0 ? * MON", [1, 8, 15, 22, 29], id="a-question-mark-does-not"),
        pytest.param("0 0 1,* * MON", [1, 8, 15, 22, 29], id="nor-does-a-star-in-a-list"),
        pytest.param("0 0 15 * *", [15], id="only-day-of-month"),
        pytest.param("0 0 15 * 0-6", list(range(1, 32)), id="a-full-range-restricts"),
        pytest.param("0 0 L * *", [31], id="last-day"),
        pytest.param("0 0 LW * *", [31], id="last-workday"),
        pytest.param("0 0 6W * *", [5], id="nearest-workday-to-a-saturday"),
        pytest.param("0 0 7W * *", [8], id="nearest-workday-to-a-sunday"),
        pytest.param("0 0 6W,31W * *", [5, 31], id="several-workdays"),
        pytest.param("0 0 * * 5L", [26], id="last-friday"),
        pytest.param("0 0 * * friL", [26], id="last-friday-by-name"),
        pytest.param("0 0 * * 7L", [28], id="last-sunday"),
        pytest.param("0 0 * * 05L,01#02", [8, 26], id="leading-zeros-in-special-forms"),
        pytest.param("0 0 * * 1#2", [8], id="second-monday"),
        pytest.param("0 0 * * MON#1,WED#3", [1, 17], id="first-monday-and-third-wednesday"),
        pytest.param("0 0 * * 1#5", [29], id="fifth-monday"),
        pytest.param("0 0 L * 1#2", [8, 31], id="special-forms-are-restrictions"),
        pytest.param("0 0 * * 2,5L", [2, 9, 16, 23, 26, 30], id="plain-and-special-in-a-list"),
    ],
)
def test_days_of_march_2027(text, days):
    # March 2027 has 31 days and begins on a Monday.
    expression = compile_expression(text)
    found = moments.between(expression, "2027-02-28T23:00:00Z", "2027-03-31T23:00:00Z")
    assert found == [f"2027-03-{day:02}T00:00:00Z" for day in days]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("0 0 1W 8 *", "2026-08-03T00:00:00Z", id="first-is-a-saturday-stays-in-month"),
        pytest.param("0 0 31W 5 *", "2026-05-29T00:00:00Z", id="last-is-a-sunday-stays-in-month"),
        pytest.param("0 0 31W 2 *", "2026-02-27T00:00:00Z", id="a-short-month-ends-earlier"),
        pytest.param("0 0 L 2 *", "2026-02-28T00:00:00Z", id="last-of-february"),
        pytest.param("0 0 29 2 *", "2028-02-29T00:00:00Z", id="leap-day"),
        pytest.param("0 0 29 2 1", "2026-02-02T00:00:00Z", id="leap-day-or-monday"),
    ],
)
def test_ends_of_months(text, first):
    expression = compile_expression(text)
    assert moments.next_times(expression, "2026-01-01T12:00:00Z", 1) == [first]


def test_there_is_nothing_before_1970_and_after_2112():
    expression = compile_expression("* * * * *")
    assert moments.utc(expression.next_after(-(10**18))) == "1970-01-01T00:00:00Z"
    assert expression.previous_before(0) is None
    assert moments.utc(expression.previous_before(10**18)) == "2112-09-17T23:53:00Z"
    assert expression.next_after(10**18) is None
    assert expression.next_after(moments.us("2112-09-17T23:53:00Z")) is None


def test_the_identity_counts_only_with_h():
    first, second = (compile_expression("H H * * *", identity=name) for name in ("a/b", "a/c"))
    start = "2026-01-01T00:00:00Z"
    assert moments.next_times(first, start, 1) != moments.next_times(second, start, 1)
