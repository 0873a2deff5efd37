"""What follows from a receiver's answer."""

from __future__ import annotations

import email.utils

import pytest

from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.webhook import response
from tests.support import firings

DUE_US = firings.SLOT_US
HOUR_US = 3_600_000_000
SECOND_US = 1_000_000


def judge(answer, *, now_us=DUE_US, **webhook):
    return response.judge(answer, firings.a_webhook(**webhook), now_us=now_us, due_us=DUE_US)


def answered(status, retry_after=None):
    return response.Answer(status=status, retry_after=retry_after)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_delivered(status):
    assert judge(answered(status)) == outcome.Delivered(accepted_us=DUE_US, http_status=status)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(status):
    given = judge(answered(status))
    assert isinstance(given, outcome.Retry)
    assert given.http_status == status
    assert given.started


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 422, 451])
def test_a_configuration_mistake_is_not_repeated(status):
    given = judge(answered(status))
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.REJECTED
    assert str(status) in given.message


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_that_says_so(status):
    given = judge(answered(status))
    assert isinstance(given, outcome.Rejected)
    assert "redirects are not followed" in given.message


def test_gone_has_a_reason_of_its_own():
    given = judge(answered(410))
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.ENDPOINT_GONE


def test_gone_is_a_success_where_the_user_says_so():
    assert isinstance(judge(answered(410), success=("410",)), outcome.Delivered)


@pytest.mark.parametrize("status", [100, 101, 199])
def test_an_interim_status_is_no_success(status):
    assert isinstance(judge(answered(status)), outcome.Rejected)


@pytest.mark.parametrize(
    ("status", "patterns", "expected"),
    [
        pytest.param(204, ("204",), True, id="exact"),
        pytest.param(205, ("204",), False, id="exact, other"),
        pytest.param(250, ("200-299",), True, id="range"),
        pytest.param(300, ("200-299",), False, id="above the range"),
        pytest.param(200, ("200-299",), True, id="first of the range"),
        pytest.param(302, ("2xx", "3xx"), True, id="second pattern"),
        pytest.param(500, ("network",), False, id="a word"),
        pytest.param(500, (), False, id="nothing"),
    ],
)
def test_patterns_match_statuses(status, patterns, expected):
    assert response.matches(status, patterns) is expected


def test_only_the_users_success_counts():
    assert isinstance(judge(answered(302), success=("302",)), outcome.Delivered)
    assert isinstance(judge(answered(200), success=("302",)), outcome.Rejected)


def test_what_to_repeat_is_the_users_choice():
    rule = actions.RetryRule(retry_on=("404",))
    assert isinstance(judge(answered(404), retry=rule), outcome.Retry)
    assert isinstance(judge(answered(500), retry=rule), outcome.Rejected)


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


def test_retry_after_of_any_length_is_no_crash():
    assert response.retry_after_us("9" * 10_000, DUE_US) is not None


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_receiver_is_obeyed(status):
    given = judge(answered(status, retry_after="120"))
    assert given.after_us == 120 * SECOND_US


def test_a_date_is_obeyed_too():
    date = email.utils.formatdate((DUE_US + HOUR_US) // SECOND_US, usegmt=True)
    assert judge(answered(503, retry_after=date)).after_us == HOUR_US


def test_retry_after_of_other_statuses_is_ignored():
    assert judge(answered(500, retry_after="120")).after_us is None


def test_a_year_is_cut_to_the_end_of_max_age():
    rule = actions.RetryRule(max_age_us=HOUR_US)
    given = judge(
        answered(429, retry_after="31536000"), now_us=DUE_US + 600 * SECOND_US, retry=rule
    )
    assert given.after_us == HOUR_US - 601 * SECOND_US


def test_past_max_age_a_second_is_left_for_the_worker_to_give_up():
    rule = actions.RetryRule(max_age_us=SECOND_US)
    given = judge(answered(429, retry_after="60"), now_us=DUE_US + HOUR_US, retry=rule)
    assert given.after_us == SECOND_US


def test_no_answer_is_tried_again():
    trouble = target.Trouble(reason=Reason.TIMEOUT, message="late")
    assert judge(trouble) == outcome.Retry(reason=Reason.TIMEOUT, message="late")


def test_no_answer_is_final_where_the_user_does_not_repeat_it():
    trouble = target.Trouble(reason=Reason.NETWORK, message="cut")
    given = judge(trouble, retry=actions.RetryRule(retry_on=("5xx",)))
    assert given == outcome.Rejected(reason=Reason.NETWORK, message="cut")


def test_a_blocked_address_is_final_whatever_the_user_repeats():
    trouble = target.Trouble(reason=Reason.BLOCKED_ADDRESS, message="no", final=True)
    assert isinstance(judge(trouble), outcome.Rejected)


def test_the_excerpt_is_one_bounded_readable_line():
    text = target.excerpt(b"bad\r\n\x1b[31mred\x00\xff" + b"x" * 5000)
    assert text.startswith("bad [31mred")
    assert len(text) <= target.EXCERPT_BYTES
    assert text.isprintable()


def test_a_secret_that_the_receiver_echoes_is_not_kept():
    text = target.excerpt(b"your token s3cr3t-t0ken is wrong", ["s3cr3t-t0ken", "is"])
    assert text == "your token [redacted] is wrong"


def test_an_answer_says_what_was_answered():
    assert judge(answered(422)).message == "answered 422"
