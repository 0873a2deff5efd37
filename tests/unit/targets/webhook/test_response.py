"""What follows from a receiver's answer."""

from __future__ import annotations

import pytest

from duepoint.net import httpclient
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from duepoint.targets.webhook import response
from tests.support import firings

DUE_US = firings.SLOT_US
HOUR_US = 3_600_000_000
SECOND_US = 1_000_000


def judge(answer, *, now_us=DUE_US, **webhook):
    return response.judge(answer, firings.a_webhook(**webhook), now_us=now_us, due_us=DUE_US)


def answered(status, retry_after=None):
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return httpclient.Response(status, headers, b"", keep_alive=True)


ONLY_302 = {"success": ("302",)}
ONLY_404 = {"retry": actions.RetryRule(retry_on=("404",))}


@pytest.mark.parametrize(
    ("statuses", "webhook", "expected"),
    [
        ((200, 201, 202, 204, 299), {}, outcome.Delivered),
        ((408, 409, 425, 429, 500, 502, 503, 504, 599), {}, outcome.Retry),
        ((400, 401, 403, 404, 405, 410, 413, 422, 451), {}, outcome.Rejected),
        ((100, 101, 199, 300, 301, 302, 303, 307, 308), {}, outcome.Rejected),
        ((410,), {"success": ("410",)}, outcome.Delivered),
        ((302,), ONLY_302, outcome.Delivered),
        ((200,), ONLY_302, outcome.Rejected),
        ((404,), ONLY_404, outcome.Retry),
        ((500,), ONLY_404, outcome.Rejected),
    ],
)
def test_the_status_and_the_users_choice_decide(statuses, webhook, expected):
    for status in statuses:
        given = judge(answered(status), **webhook)
        assert isinstance(given, expected), status
        assert given.http_status == status
        assert expected is not outcome.Retry or given.started


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (422, Reason.REJECTED, "answered 422"),
        (302, Reason.REJECTED, "redirects are not followed"),
        (410, Reason.ENDPOINT_GONE, "410"),
    ],
)
def test_a_refusal_has_its_reason(status, reason, says):
    given = judge(answered(status))
    assert given.reason is reason
    assert says in given.message


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        pytest.param("120", 120 * SECOND_US, id="seconds"),
        pytest.param(" 3 ", 3 * SECOND_US, id="with blanks"),
        pytest.param("0", SECOND_US, id="zero is at least a second"),
        pytest.param("abc", None, id="neither form"),
        pytest.param("-5", None, id="negative"),
        pytest.param("1.5", None, id="fraction"),
        pytest.param("", None, id="empty"),
        pytest.param("Sun, 01 Mar 2026 13:00:00 GMT", HOUR_US, id="date"),
        pytest.param("Sunday, 01-Mar-26 13:00:00 GMT", HOUR_US, id="obsolete date"),
        pytest.param("Sun Mar  1 13:00:00 2026", HOUR_US, id="asctime date"),
        pytest.param("Sun, 01 Mar 2020 13:00:00 GMT", SECOND_US, id="date in the past"),
        pytest.param("Sun, 99 Mar 2026 13:00:00 GMT", None, id="no such date"),
        pytest.param(f"Sun, 01 Mar {9:9<20} 13:00:00 GMT", None, id="a year too long"),
        pytest.param(f"Sun, 01 Mar 2026 13:00:00 +{9:9<20}", None, id="an offset too long"),
        pytest.param("٣", None, id="digits of another script"),
    ],
)
def test_retry_after_is_read(text, expected_us):
    assert response.retry_after_us(text, DUE_US) == expected_us


@pytest.mark.parametrize(
    ("status", "retry_after", "max_age_us", "late_us", "after_us"),
    [
        (429, "120", None, 0, 120 * SECOND_US),
        (503, "120", None, 0, 120 * SECOND_US),
        (503, "Sun, 01 Mar 2026 13:00:00 GMT", None, 0, HOUR_US),
        (500, "120", None, 0, None),
        (429, "31536000", HOUR_US, 600 * SECOND_US, HOUR_US - 601 * SECOND_US),
        (429, "60", SECOND_US, HOUR_US, SECOND_US),
    ],
    ids=["429", "503", "a date", "not busy", "a year", "past maxAge"],
)
def test_a_busy_receiver_is_obeyed_until_the_end_of_max_age(
    status, retry_after, max_age_us, late_us, after_us
):
    rule = actions.RetryRule() if max_age_us is None else actions.RetryRule(max_age_us=max_age_us)
    given = judge(answered(status, retry_after), now_us=DUE_US + late_us, retry=rule)
    assert given.after_us == after_us


def test_the_excerpt_is_one_bounded_readable_line():
    text = target.excerpt(b"bad\r\n\x1b[31mred\x00\xff" + b"x" * 5000)
    assert text.startswith("bad [31mred")
    assert len(text) <= target.EXCERPT_BYTES
    assert text.isprintable()


def test_a_secret_that_the_receiver_echoes_is_not_kept():
    text = target.excerpt(b"your token s3cr3t-t0ken is wrong", ["s3cr3t-t0ken", "is"])
    assert text == "your token [redacted] is wrong"
