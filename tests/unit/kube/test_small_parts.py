"""Times, paths and the meaning of answers."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.kube import errors, schedules, times

# -- times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2026-01-01", "2026-01-01T00:00:00"),
        *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
    ],
)
def test_a_text_that_names_no_instant_is_refused(text: str):
    with pytest.raises(ValueError, match=r"."):
        times.parse_us(text)


# -- answers ----------------------------------------------------------------------------------


def answer(code: int, headers: dict[str, str] | None = None, **status: object) -> errors.ApiError:
    return errors.from_answer("GET /x", code, headers or {}, msgspec.json.encode(status))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (410, errors.Gone),
        (413, errors.Invalid),
        (422, errors.Invalid),
        (429, errors.Throttled),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
        (302, errors.Unavailable),
        (418, errors.Unavailable),
    ],
)
def test_each_answer_has_its_reaction(code: int, expected: type):
    found = answer(code, message="told", reason="R")
    assert type(found) is expected
    assert found.status == code
    assert "GET /x" in str(found)
    assert "told" in str(found)


@pytest.mark.parametrize(
    ("headers", "details", "expected"),
    [
        ({"Retry-After": "7"}, None, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None, 1.0),
        ({"Retry-After": "99999999999"}, None, 3600.0),
        ({}, None, 1.0),
    ],
)
def test_a_throttled_request_knows_how_long_to_wait(headers, details, expected):
    found = answer(429, headers, details=details)
    assert isinstance(found, errors.Throttled)
    assert found.retry_after_seconds == expected
    assert not found.sent


@pytest.mark.parametrize(
    ("message", "causes", "expected"),
    [
        ('jobs "a" is forbidden: exceeded quota: q', [], (False, False)),
        ("being terminated", [{"reason": "NamespaceTerminating"}], (False, True)),
        ('User "a" cannot create resource "jobs"', [], (True, False)),
        ('violates PodSecurity "restricted:latest"', [], (False, False)),
    ],
)
def test_a_403_tells_why(message, causes, expected):
    found = answer(403, message=message, details={"causes": causes})
    assert isinstance(found, errors.Forbidden)
    assert (found.is_about_rights, found.is_terminating) == expected


# -- paths ------------------------------------------------------------------------------------


def test_a_name_cannot_leave_its_place_in_a_path():
    assert schedules.path("a/../b", "c?d#e") == (
        "/apis/duepoint.dev/v1alpha1/namespaces/a%2F..%2Fb/schedules/c%3Fd%23e"
    )
