"""What the dashboard shows of an object: its health in one word, its slots, its next times."""

from __future__ import annotations

import json

import msgspec
import pytest

from duepoint.httpapi.dashboard import rows
from duepoint.kube import port, schedules
from tests.support.builders import at

NOW = at("2026-03-02 00:00:00")
SPEC = {"schedule": "30 4 * * *", "webhook": {"url": "https://a.example/"}}


def raw(value):
    return msgspec.Raw(json.dumps(value).encode())


def an_object(spec=SPEC, status=None, generation=1, kind=schedules.Schedule):
    metadata = port.Metadata(
        name="report", namespace="shop", uid="u-1", generation=generation,
        creation_timestamp="2026-01-01T00:00:00Z",
    )  # fmt: skip
    return kind(metadata=metadata, spec=raw(spec), status=raw(status or {}))


def a_condition(type_, reason, status="True", message=""):
    return {"type": type_, "status": status, "reason": reason, "message": message}


def a_status(*more, observed=1, **fields):
    ready = a_condition("Ready", "Armed")
    return {"observedGeneration": observed, "conditions": [ready, *more], **fields}


CASES = {
    "armed": (SPEC, a_status(), "ok"),
    "never looked at": (SPEC, {}, "waiting"),
    "an edit that is not in force": (SPEC, a_status(observed=0), "waiting"),
    "stalled": (SPEC, a_status(a_condition("Stalled", "InvalidSpec")), "problem"),
    "reconciling": (SPEC, a_status(a_condition("Reconciling", "Pending")), "waiting"),
    "overdue": (SPEC, a_status(a_condition("Overdue", "Overdue")), "failing"),
    "not overdue any more": (SPEC, a_status(a_condition("Overdue", "Overdue", "False")), "ok"),
    "its runs fail": (SPEC, a_status(a_condition("Failing", "Network")), "failing"),
    "missed last": (SPEC, a_status(a_condition("Missed", "Forbidden")), "failing"),
    "failed before": (
        SPEC, a_status(recentRuns=[{"outcome": "Succeeded"}, {"outcome": "Failed"}]), "ok",
    ),
    "a Secret that the worker may not read": (
        SPEC, a_status(a_condition("Reconciling", "SecretUnavailable")), "problem",
    ),
    "suspended": ({**SPEC, "suspend": True}, a_status(), "suspended"),
    "suspended and refused": (
        {**SPEC, "suspend": True}, a_status(a_condition("Stalled", "InvalidSpec")), "problem",
    ),
    "a suspension that is over": (
        {**SPEC, "suspend": True, "suspendUntil": "2026-03-01T00:00:00Z"}, a_status(), "ok",
    ),
    "a suspension with an end": (
        {**SPEC, "suspend": True, "suspendUntil": "2026-03-03T00:00:00Z"}, a_status(), "suspended",
    ),
    "completed": (
        SPEC, {"observedGeneration": 1, "conditions": [a_condition("Ready", "Completed")]},
        "completed",
    ),
    "no object of ours": ({"schedule": 7}, a_status(), "problem"),
    "a status of another version": (SPEC, {"conditions": "many"}, "problem"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "status", "health"), CASES.values(), ids=CASES)
def test_the_health_is_one_word(spec, status, health):
    assert rows.schedule(an_object(spec, status), NOW).health == health


def test_a_spec_that_cannot_be_read_is_shown():
    spec = {**SPEC, "schedule": 7}
    found = rows.detail(an_object(spec, a_status()), NOW, may=None)
    assert found.health == "problem"
    assert json.loads(bytes(found.spec)) == spec
