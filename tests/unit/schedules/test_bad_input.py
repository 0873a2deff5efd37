"""The catalogue of bad input, from the text of a spec to what its author is told.

Numbers are those of the project's list of bad inputs; most cases are refused by the CRD at apply
already (tests/integration/crds), and all of them here, because an object may have been stored
under an older schema. Each answer has a reason, the field's path, the place in the text and a hint.
"""

from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.schedules import spec
from tests.support.builders import CREATED_US, a_spec


def refused(**fields) -> errors.FieldError:
    """The first thing that is wrong with the spec."""
    with pytest.raises(errors.InvalidSpec) as caught:
        a_spec(**fields)
    return caught.value.errors[0]


ZONES = [
    ("38-empty", "", "leave timeZone out for Etc/UTC"),
    ("39-local", "Local", "the zone of a machine is never used; write a name such as"),
    ("40-a-way-out", "../../etc/passwd", "not in the IANA database"),
    ("41-absolute-path", "/etc/localtime", "not in the IANA database"),
    ("42-small-letters", "est5edt", 'write it as "EST5EDT"'),
    ("43-unknown", "Mars/Olympus", "not in the IANA database"),
    ("43-a-slip", "Europe/Berln", 'did you mean "Europe/Berlin"?'),
    ("43-a-removed-one", "US/Pacific-New", 'did you mean "US/Pacific"?'),
    ("43-a-city", "berlin", 'did you mean "Europe/Berlin"?'),
    ("43-an-abbreviation", "PST", 'did you mean "America/Los_Angeles"?'),
    ("44-trailing-blank", "Etc/UTC ", 'write it as "Etc/UTC"'),
    ("46-an-offset", "UTC+2", '"Etc/GMT-2", whose sign is the other way round'),
    ("46-an-impossible-offset", "UTC+25:00", "write the name of a place that has it"),
]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0 0 29 2 5", id="20-leap-day-or-friday"),
        pytest.param("0 0 29 2 *", id="20-leap-day"),
        pytest.param("0 0 * * 7", id="22-seven-is-sunday"),
        pytest.param("0 0 13 * 5", id="23-both-day-fields"),
        pytest.param("@at 2020-01-01T00:00:00Z", id="34-in-the-past"),
        pytest.param("H H(0-5) H * *", id="26-h-with-ranges"),
    ],
)
def test_unusual_texts_that_are_right(text):
    a_spec(schedule=text)


@pytest.mark.parametrize("field", ["startTime", "suspendUntil"])
def test_33_a_start_beyond_the_calendar_is_out_of_range(field):
    error = refused(**{field: "2150-01-01T00:00:00Z"})
    assert (error.reason, error.path) == ("InvalidSpec", f"spec.{field}")


def test_37_an_end_in_the_year_9999_is_no_end():
    assert a_spec(endTime="9999-12-31T23:59:59Z").rule.timing.end_us > 1 << 52


def test_57_a_key_that_is_written_twice_counts_once_and_last():
    raw = b'{"schedule": "bad", "schedule": "0 0 * * *", "webhook": {"url": "https://a"}}'
    parsed = spec.parse(raw, namespace="a", name="b", uid="c", generation=1, created_us=CREATED_US)
    assert parsed.rule.timing.schedules == ("0 0 * * *",)


@pytest.mark.parametrize(("zone", "told"), [pytest.param(*case, id=name) for name, *case in ZONES])
@pytest.mark.parametrize("text", ["0 0 * * *", "@every 5m", "@at 2026-12-24T18:00:00Z"])
def test_zones_that_are_none(zone, told, text):
    error = refused(schedule=text, timeZone=zone)
    assert (error.reason, error.path) == ("InvalidSpec", "spec.timeZone")
    assert told in error.message
