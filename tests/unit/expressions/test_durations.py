"""Durations: the texts that are read, the ones that are not, and the way back."""

import pytest

from duepoint.expressions import durations


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0", 0),
        ("0s", 0),
        ("250ms", 250_000),
        ("1s", 1_000_000),
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("1.5h", 5_400_000_000),
        ("0.1ms", 100),
        ("1d12h", 129_600_000_000),
        ("1m1m", 120_000_000),
        ("30m1h", 5_400_000_000),
        ("0.000000000000000000d", 0),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text, us):
    assert durations.parse_duration_us(text) == us


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "missing"),
        ("5", "without a unit"),
        ("s", "column 1"),
        ("5s ", "column 3"),
        (" 5s", "column 1"),
        ("5S", "unknown unit"),
        ("-5s", "sign"),
        ("+5s", "sign"),
        ("5 s", "without a unit"),
        ("1.s", "without a unit"),
        (".5s", "column 1"),
        ("1,5s", "without a unit"),
        ("5ns", "too fine"),
        ("5us", "too fine"),
        ("5µs", "too fine"),
        ("5min", "unknown unit"),
        ("1w", "unknown unit"),
        ("0.0001ms", "finer than a microsecond"),
        ("1e3s", "exponent"),
        ("\u0665s", "column 1"),
        ("9" * 19 + "d", "longer"),
    ],
)
def test_a_text_that_is_no_duration_is_told_why(text, told):
    with pytest.raises(ValueError, match=r"."):
        durations.parse_duration_us(text)
    with pytest.raises(durations.InvalidDuration) as caught:
        durations.parse_duration_us(text)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (1, "0.001ms"),
        (1_500, "1.5ms"),
        (1_000_000, "1s"),
        (1_500_000, "1s500ms"),
        (5_400_000_000, "1h30m"),
        (86_400_000_000, "1d"),
    ],
)
def test_a_duration_is_shown_in_its_largest_units(us, text):
    assert durations.format_duration(us) == text
