"""Limits of an attempt, limits of trying, and who gets which firing."""

from __future__ import annotations

import pytest

from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.targets import target
from tests.support import firings

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


def limits(action, *, deadline_us=None):
    firing = firings.a_firing(action, due_us=firings.SLOT_US + 5)
    return target.retry_limits(firing, deadline_us)


def test_a_webhooks_retries_are_its_specs_counted_from_the_due():
    rule = actions.RetryRule(
        max_attempts=3, initial_backoff_us=1, max_backoff_us=2, max_age_us=HOUR_US
    )
    assert limits(firings.a_webhook(retry=rule)) == outcome.RetryLimits(
        first_us=1, most_us=2, max_attempts=3, give_up_us=firings.SLOT_US + 5 + HOUR_US
    )


@pytest.mark.parametrize("action", [firings.a_job(), firings.a_stream()], ids=["job", "stream"])
def test_jobs_and_entries_are_tried_for_a_day_or_until_their_deadline(action):
    assert limits(action).give_up_us == firings.SLOT_US + 5 + 24 * HOUR_US
    assert limits(action, deadline_us=77).give_up_us == 77
    assert limits(action).first_us == 1_000_000
    assert limits(action).most_us == 60_000_000
