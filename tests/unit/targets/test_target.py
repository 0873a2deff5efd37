"""Limits of an attempt, limits of trying, and who gets which firing."""

from __future__ import annotations

import pytest

from duepoint import telemetry
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.targets import target
from tests.fakes import fakeclock, recordingtarget
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
    assert target.attempt_limit_seconds(actions.Action(target=action)) == seconds


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


def test_a_starting_deadline_does_not_end_a_webhook_that_has_started():
    assert limits(firings.a_webhook(), deadline_us=1) == limits(firings.a_webhook())


@pytest.mark.parametrize("action", [firings.a_job(), firings.a_stream()], ids=["job", "stream"])
def test_jobs_and_entries_are_tried_for_a_day_or_until_their_deadline(action):
    assert limits(action).give_up_us == firings.SLOT_US + 5 + 24 * HOUR_US
    assert limits(action, deadline_us=77).give_up_us == 77
    assert limits(action).first_us == 1_000_000
    assert limits(action).most_us == 60_000_000


def test_a_job_is_tried_until_its_deadline_however_often_that_is():
    at_us = firings.SLOT_US
    tries = 0
    while at_us is not None:
        tries += 1
        at_us = outcome.next_try(
            limits(firings.a_job()), attempts_made=tries, now_us=at_us, fraction=0.5
        )
    assert tries > 1000  # 24 h at 30 s


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        pytest.param(firings.a_job(), "job", id="job"),
        pytest.param(firings.a_webhook(), "webhook", id="webhook"),
        pytest.param(firings.a_stream(), "stream", id="stream"),
    ],
)
async def test_each_firing_goes_to_the_target_of_its_kind_and_is_counted(action, kind):
    clock = fakeclock.FakeClock()
    kinds = {name: recordingtarget.RecordingTarget(clock) for name in ("job", "webhook", "stream")}
    counted = telemetry.runs_total.labels("default", kind, "delivered")
    before = counted._value.get()

    given = await target.Targets(**kinds).fire(a_firing(clock, action))

    assert isinstance(given, outcome.Delivered)
    assert {name for name, one in kinds.items() if one.fired} == {kind}
    assert counted._value.get() == before + 1
