"""Limits of an attempt, limits of trying, and who gets which firing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint.schedules import actions
from duepoint.targets import target
from tests.support import firings, generatedcases  # noqa: F401 - sets how cases are generated

HOUR_US = 3_600_000_000


def a_firing(clock, action=None, *, seconds_left=10.0, **changes):
    end = clock.monotonic() + seconds_left
    return firings.a_firing(action, not_after_monotonic=end, **changes)


@pytest.mark.parametrize(
    ("action", "seconds"),
    [
        pytest.param(firings.a_webhook(), 30.0, id="webhook"),
        pytest.param(firings.a_webhook(timeout_seconds=300), 300.0, id="patient webhook"),
        pytest.param(firings.a_job(), 10.0, id="job"),
        pytest.param(firings.a_stream(), 5.0, id="stream"),
    ],
)
def test_an_attempt_has_a_limit_of_its_own(action, seconds):
    assert action.limit_seconds == seconds


def next_try(action, attempts_made=1, *, now_us=0, fraction=0.5, tried_for_us=0, deadline_us=None):
    return target.next_try(
        firings.a_firing(action, due_us=5),
        deadline_us,
        attempts_made=attempts_made,
        now_us=now_us,
        fraction=fraction,
        tried_for_us=tried_for_us,
    )


def test_a_webhooks_retries_are_its_specs_counted_from_the_due():
    rule = actions.RetryRule(max_attempts=3, max_age_us=HOUR_US)
    webhook = firings.a_webhook(retry=rule)
    assert next_try(webhook, 2, now_us=HOUR_US // 2) is not None
    assert next_try(webhook, 3) is None
    assert next_try(webhook, now_us=HOUR_US, deadline_us=77) is None


@pytest.mark.parametrize("action", [firings.a_job(), firings.a_stream()], ids=["job", "stream"])
def test_jobs_and_entries_are_tried_for_a_day_or_until_their_deadline(action):
    assert next_try(action, 1_000, now_us=23 * HOUR_US) is not None
    assert next_try(action, now_us=24 * HOUR_US) is None
    assert next_try(action, now_us=77, deadline_us=77) is None


@given(st.integers(1, 19), st.floats(0, 0.999999))
def test_a_wait_is_within_its_ceiling(attempts, fraction):
    rule = actions.RetryRule()
    due_us = next_try(firings.a_webhook(retry=rule), attempts, fraction=fraction)
    ceiling_us = min(rule.max_backoff_us, rule.initial_backoff_us * 2 ** (attempts - 1))
    assert target.LEAST_WAIT_US <= due_us <= ceiling_us


@given(st.integers(1, 1_000), st.integers(0, 100_000_000), st.floats(0, 0.999999))
def test_an_entry_waits_no_longer_than_it_has_been_tried(attempts, tried_for_us, fraction):
    stream = firings.a_stream()
    due_us = next_try(stream, attempts, tried_for_us=tried_for_us, fraction=fraction)
    assert due_us <= min(max(1_000_000, tried_for_us), 60_000_000)
