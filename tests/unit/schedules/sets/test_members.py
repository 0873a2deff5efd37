"""Members as JSON: what is taken, and what is refused with its field."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from duepoint.schedules import rule as rules
from duepoint.schedules.sets import members, setspec

NOW_US = 1_795_000_000_000_000
SETTINGS = setspec.SetSettings(
    defaults=rules.Rule(
        timing=rules.Timing(schedules=rules.ONCE, time_zone="Europe/Rome", jitter_ms=5_000),
        policy=rules.Policy(starting_deadline_seconds=60),
    ),
    limits=setspec.SetLimits(payload_bytes=64),
)


def row(text: bytes, settings=SETTINGS):
    return members.RowReader(settings).row(text, now_us=NOW_US)


def test_what_a_member_does_not_say_comes_from_its_set():
    found = row(b'{"id": "a", "schedule": "0 9 * * *"}')
    timing = found.rule.timing
    assert (timing.time_zone, timing.jitter_ms) == ("Europe/Rome", 5_000)
    assert found.rule.policy.starting_deadline_seconds == 60
    assert (found.at_us, found.payload) == (None, b"")


def test_a_one_off_has_its_instant_beside_a_rule_that_others_share():
    first = row(b'{"id": "a", "at": "2030-01-01T00:00:00Z"}')
    assert first.at_us == 1_893_456_000_000_000
    assert first.rule.timing.schedules == rules.ONCE


_NOW = 1_795_000_000


@pytest.mark.parametrize(
    ("late_seconds", "more", "runs"),
    [
        (2, b"", True),
        (59, b"", True),
        (61, b"", False),
        (365 * 86_400, b"", False),
        (3_000, b',"startingDeadlineSeconds":3600', True),
        (4_000, b',"startingDeadlineSeconds":3600', False),
        (9, b',"catchUpPolicy":"None"', True),
        (11, b',"catchUpPolicy":"None"', False),
        (365 * 86_400, b',"suspend":true', True),
    ],
)
def test_an_instant_that_passed_before_it_was_written_runs_within_its_deadline_or_a_minute(
    late_seconds, more, runs
):
    at = dt.datetime.fromtimestamp(_NOW - late_seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = row(b'{"id":"a","at":"%b"%b}' % (at.encode(), more), setspec.SetSettings())
    if runs:
        assert isinstance(found, members.ReadMember), found
    else:
        assert (found.code, found.field) == ("TooLate", "at")
        assert ("catchUpPolicy" in found.detail) == (b"catchUpPolicy" in more)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b'{"schedule": "@daily"}', "id"),
        (b'{"id": "a/b", "schedule": "@daily"}', "id"),
        (b'{"id": "", "schedule": "@daily"}', "id"),
        (b'{"id": "a"}', ""),
        (b'{"id": "a", "schedule": "@daily", "at": "2030-01-01T00:00:00Z"}', ""),
        (b'{"id": "a", "schedule": "61 * * * *"}', "schedule"),
        (b'{"id": "a", "at": "noon"}', "at"),
        (b'{"id": "a", "at": "2030-01-01T00:00:00"}', "at"),
        (b'{"id": "a", "at": "2020-01-01T00:00:00Z"}', "at"),
        (b'{"id": "a", "delay": "5m"}', "delay"),
        (b'{"id": "a", "schedule": "@daily", "timeZone": "Europe/Atlantis"}', "timeZone"),
        (b'{"id": "a", "schedule": "@daily", "jitter": "soon"}', "jitter"),
        (b'{"id": "a", "schedule": "@daily", "colour": 1}', "colour"),
        (b'{"id": "a", "schedule": "@daily", "suspend": "no"}', "suspend"),
        (b'{"id": "a", "schedule": "@daily", "dst": {"gap": "Twice"}}', "dst.gap"),
        (b'{"id": "a", "schedule": "@daily", "payload": "' + b"x" * 80 + b'"}', "payload"),
        (b'{"id": "a", "id": "b", "schedule": "@daily"}', ""),
        (b'{"id": "a", "schedule": "@daily", "payload": NaN}', ""),
        (b'{"id": "a", "schedule": "@daily", "payload": 1e400}', ""),
        (b'\xef\xbb\xbf{"id": "a", "schedule": "@daily"}', ""),
        (b'{"id": "a", "schedule": "@daily"', ""),
        (b"[]", ""),
        (b'{"id": "a", "payload": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", ""),
    ],
)
def test_what_is_wrong_is_an_answer_that_names_the_field(text, field):
    found = row(text)
    assert isinstance(found, members.RowError), found
    assert found.field == field
    assert found.detail


def test_members_that_are_jobs_cannot_be_kept_from_overlapping():
    usual = setspec.SetSettings().defaults
    of_jobs = setspec.SetSettings(defaults=msgspec.structs.replace(usual, whole_seconds=True))
    found = row(b'{"id": "a", "schedule": "0 9 * * *", "concurrencyPolicy": "Forbid"}', of_jobs)
    assert isinstance(found, members.RowError)
    assert (found.code, found.field) == ("InvalidField", "concurrencyPolicy")
    assert "write Allow" in found.detail


PLAIN = b'{"id":"a","at":"2030-01-01T00:00:00Z","payload":{"n":1}}'


def test_a_member_over_two_lines_is_two_broken_rows():
    found = map(row, (PLAIN + PLAIN, *PLAIN.split(b",", 1)))
    assert [type(each) for each in found] == [members.RowError] * 3
