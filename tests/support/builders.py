"""Builders of common test values; everything not given has its usual value."""

from __future__ import annotations

import datetime as dt
import json

from duepoint.delayqueue.definitions import codec
from duepoint.model import targets
from duepoint.schedules import definition, spec
from duepoint.schedules import rule as rules

UID = "6f1c9c2e-52a1-4b40-9d0a-0f5c6f1f7a11"


def at(text: str) -> int:
    """Return microseconds of a text like ``2026-03-01 12:00:00`` (UTC; fractions allowed)."""
    parsed = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (parsed - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


CREATED_US = at("2026-03-01 11:59:30")


def a_rule(
    schedule: str = "@every 1m",
    *,
    whole_seconds: bool = False,
    policy: dict | None = None,
    **timing,
) -> rules.Rule:
    return rules.Rule(
        timing=rules.Timing(schedules=(schedule,), **timing),
        policy=rules.Policy(**(policy or {})),
        whole_seconds=whole_seconds,
    )


def a_definition(schedule: str = "@every 1m", **changes) -> definition.Definition:
    values = {
        "namespace": "default",
        "name": "report",
        "uid": UID,
        "generation": 1,
        "timing_generation": 1,
        "created_us": CREATED_US,
        "not_before_us": CREATED_US,
        "state": definition.State.ARMED,
        "target": "digest",
    }
    rule = changes.pop("rule", None) or a_rule(schedule)
    return definition.Definition(rule=rule, **{**values, **changes})


JOB_TEMPLATE = {
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
            }
        }
    }
}


KIND = b"of kind:"


def a_spec(**fields) -> spec.ScheduleSpec:
    """Return a parsed spec; a webhook unless another target is given."""
    return spec.parse(
        raw_spec(**fields),
        namespace="default",
        name="report",
        uid=UID,
        generation=1,
        created_us=CREATED_US,
    )


def raw_spec(**fields) -> bytes:
    """Return the JSON text of ``.spec``."""
    if "schedules" not in fields:
        fields.setdefault("schedule", "*/5 * * * *")
    if not fields.keys() & targets.KINDS:
        fields["webhook"] = {"url": "https://hooks.example.com/x"}
    return json.dumps(fields).encode()


def a_record(known: definition.Definition, *, is_inline: bool = False) -> bytes:
    """Return the record as a shard stores it; inline: with the text of its rule."""
    return codec.record(known, KIND, is_inline=is_inline)
