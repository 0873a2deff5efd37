"""What expressions say in plain words."""

import pytest

from duepoint.expressions import compile_expression, merged, windowed
from tests.unit.expressions import moments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("30 2 * * *", "at 02:30 every day"),
        ("* * * * *", "every minute every day"),
        ("*/15 * * * *", "every 15 minutes every day"),
        ("*/15 9-17 * * 1-5", "every 15 minutes of hours 9-17 on Monday to Friday"),
        ("0 9,18 * * MON,WED", "at 09:00 and 18:00 on Monday and Wednesday"),
        ("0 0 1 1 *", "at 00:00 on day 1 of the month in January"),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 15W * *", "at 00:00 on the weekday nearest to day 15 of the month"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
        ("0 0 * * 1#2", "at 00:00 on the second Monday of the month"),
        ("15 30 2 * * * 2026-2028", "at 02:30:15 every day in 2026-2028"),
        ("*/10 * * * * *", "every 10 seconds every day"),
        ("*/7 * * * *", "minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour every day"),
        ("5 * * * *", "minute 5 of every hour every day"),
        ("0 2 * * * *", "minute 2 of every hour every day"),
        ("5 * * * * *", "second 5 of every minute every day"),
        ("0 0 * 6-8,12 *", "at 00:00 every day in June to August and December"),
    ],
)
def test_a_cron_expression_in_words(text, words):
    assert compile_expression(text).describe() == f"{words}, Etc/UTC"


def test_the_other_forms_in_words():
    assert compile_expression("@every 90m").describe() == "every 1h30m"
    assert compile_expression("@at 1798135200").describe() == "once, at 2026-12-24T18:00:00Z"
    both = merged([compile_expression("@every 1d"), compile_expression("0 9 * * *")])
    assert both.describe() == "every 1d; at 09:00 every day, Etc/UTC"
    cut = windowed(
        compile_expression("@every 1d"),
        start_us=moments.us("2026-01-01T00:00:00Z"),
        end_us=moments.us("2027-01-01T00:00:00Z"),
    )
    assert cut.describe() == "every 1d, from 2026-01-01T00:00:00Z, before 2027-01-01T00:00:00Z"
