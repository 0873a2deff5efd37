"""Builders of firings, attempts of one slot; everything not given has its usual value."""

from __future__ import annotations

from typing import Any

import msgspec

from duepoint.clock import SystemClock
from duepoint.model import webhook as model
from duepoint.schedules import actions
from duepoint.targets import target
from tests.support import builders

SLOT_US = builders.at("2026-03-01 12:00:00")

TEMPLATE: dict[str, Any] = builders.JOB_TEMPLATE


def a_firing(
    action: actions.Target | None = None,
    *,
    payload: object = None,
    seconds_left: float = 10.0,
    **changes: Any,
) -> target.Firing:
    """Return an attempt; `seconds_left` counts from now on the machine's monotonic clock."""
    raw = msgspec.Raw(b"" if payload is None else msgspec.json.encode(payload))
    slot_us = changes.get("slot_us", SLOT_US)
    end = changes.get("not_after_monotonic", SystemClock().monotonic() + seconds_left)
    values: dict[str, Any] = {
        "action": actions.Action(target=action or a_webhook(), payload=raw),
        "namespace": "default",
        "name": "report",
        "uid": builders.UID,
        "generation": 3,
        "slot_us": slot_us,
        "due_us": slot_us,
        "previous_us": slot_us - 60_000_000,
        "trigger": "Schedule",
        "attempt": 1,
        "run_uid": "",
        "time_zone": "Etc/UTC",
        "not_after_monotonic": end,
        "ends_by_monotonic": end,
    }
    return target.Firing(**{**values, **changes})


def a_webhook(url: str | None = "https://hooks.example.com/x", **changes) -> actions.WebhookAction:
    headers = tuple(
        model.HeaderFields(name=name, value=value) for name, value in changes.pop("headers", ())
    )
    if "service" in changes:
        url = None
    return actions.WebhookAction(url=url, headers=headers, **changes)


def a_job(template: dict[str, Any] | None = None) -> actions.JobAction:
    return actions.job_of(TEMPLATE if template is None else template)


def a_stream(name: str = "ticks", max_length: int | None = None) -> actions.StreamAction:
    return actions.StreamAction(name=name, max_length=max_length)
