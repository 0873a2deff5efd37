"""The entry of the engine: each form gives an expression, each mistake a reason and a place."""

import datetime as dt

import pytest

from duepoint.expressions import compile as compiling


def us(text):
    return int(dt.datetime.fromisoformat(text).timestamp() * 1_000_000)


def shown(instant_us):
    moment = dt.datetime.fromtimestamp(instant_us / 1_000_000, dt.UTC)
    return moment.isoformat().replace("+00:00", "Z")


def next_times(expression, start, count):
    found, at_us = [], us(start)
    for _ in range(count):
        at_us = expression.next_after(at_us)
        if at_us is None:
            break
        found.append(shown(at_us))
    return found


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("30 2 * * *", "2026-01-02T02:30:00Z", id="five-fields"),
        pytest.param("15 30 2 * * *", "2026-01-02T02:30:15Z", id="six-fields-have-seconds-first"),
        pytest.param("15 30 2 * * * 2028", "2028-01-01T02:30:15Z", id="seven-fields-have-a-year"),
        pytest.param("@yearly", "2027-01-01T00:00:00Z", id="yearly"),
        pytest.param("@annually", "2027-01-01T00:00:00Z", id="annually"),
        pytest.param("@monthly", "2026-02-01T00:00:00Z", id="monthly"),
        pytest.param("@weekly", "2026-01-04T00:00:00Z", id="weekly"),
        pytest.param("@daily", "2026-01-02T00:00:00Z", id="daily"),
        pytest.param("@midnight", "2026-01-02T00:00:00Z", id="midnight"),
        pytest.param("@hourly", "2026-01-01T13:00:00Z", id="hourly"),
        pytest.param("@at 2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z", id="at"),
        pytest.param("@at 1798135200", "2026-12-24T18:00:00Z", id="at-in-unix-seconds"),
        pytest.param("@at 2026-12-24T19:00:00+01:00", "2026-12-24T18:00:00Z", id="at-with-offset"),
    ],
)
def test_each_form_names_its_slots(text, first):
    assert next_times(compiling.compile_expression(text), "2026-01-01T12:00:00Z", 1) == [first]
