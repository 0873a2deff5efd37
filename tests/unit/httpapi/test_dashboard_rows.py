"""What the dashboard shows of an object: its health in one word, its slots, its next times."""

from __future__ import annotations

import json

import msgspec
import pytest

from duepoint.httpapi.dashboard import rows
from duepoint.kube import port, schedules, schedulesets
from duepoint.runs.history import PastSlot
from duepoint.runs.run import RunState
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
    "stalled": (SPEC, a_status(a_condition("Stalled", "InvalidSchedule")), "problem"),
    "reconciling": (SPEC, a_status(a_condition("Reconciling", "SecretsPending")), "waiting"),
    "overdue": (SPEC, a_status(a_condition("Overdue", "Overdue")), "failing"),
    "not overdue any more": (SPEC, a_status(a_condition("Overdue", "Overdue", "False")), "ok"),
    "its runs fail": (SPEC, a_status(a_condition("Failing", "Network")), "failing"),
    "missed last": (SPEC, a_status(a_condition("Missed", "QuotaExceeded")), "failing"),
    "failed before": (
        SPEC, a_status(recentRuns=[{"outcome": "Succeeded"}, {"outcome": "Failed"}]), "ok",
    ),
    "a Secret that the worker may not read": (
        SPEC, a_status(a_condition("Reconciling", "SecretForbidden")), "problem",
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
    assert rows.schedule(an_object(spec, status), NOW)["health"] == health


def test_a_row_leaves_out_what_is_usual():
    assert rows.schedule(an_object(status=a_status()), NOW) == {
        "namespace": "shop", "name": "report", "schedule": "30 4 * * *", "health": "ok",
    }  # fmt: skip


def test_the_next_times_begin_at_the_end_of_a_suspension():
    spec = {**SPEC, "suspend": True, "suspendUntil": "2026-03-10T00:00:00Z"}
    found = rows.detail(an_object(spec, a_status()), (), NOW)
    assert found["upcoming"][0] == "2026-03-10T04:30:00Z"
    assert len(found["upcoming"]) == rows.UPCOMING
    without_end = rows.detail(an_object({**SPEC, "suspend": True}, a_status()), (), NOW)
    assert without_end["upcoming"] == []


def test_a_spec_that_cannot_be_read_says_why_and_is_shown():
    spec = {**SPEC, "schedule": "61 * * * *"}
    found = rows.detail(an_object(spec, a_status()), (), NOW)
    assert "spec.schedule" in found["invalid"]
    assert found["upcoming"] == []
    assert json.loads(bytes(found["spec"])) == spec


def test_slots_that_only_the_queue_has_kept_follow_each_once():
    shown = {"scheduledTime": "2026-03-01T04:30:00Z", "outcome": "Failed", "reason": "Network"}
    kept = tuple(
        PastSlot(slot_us=at(f"2026-{day} 04:30:00"), trigger="Schedule", outcome=RunState.FAILED,
                 reason="Network")
        for day in ("03-01", "02-28")
    )  # fmt: skip
    found = rows.detail(an_object(status=a_status(recentRuns=[shown])), kept, NOW)
    times = [slot.scheduled_time for slot in found["slots"]]
    assert times == ["2026-03-01T04:30:00Z", "2026-02-28T04:30:00Z"]
    assert found["advice"]["Network"]
    assert rows.detail(an_object(status=a_status()), None, NOW)["hasOlder"] is False


def test_a_set_is_suspended_deleting_or_has_lost_members():
    def health(*more):
        item = an_object(status=a_status(*more, members=3), kind=schedulesets.ScheduleSet)
        return rows.schedule_set(item)["health"]

    assert health() == "ok"
    assert health(a_condition("Suspended", "Suspended")) == "suspended"
    assert health(a_condition("Deleting", "Deleting")) == "waiting"
    assert health(a_condition("DataLost", "DataLost")) == "problem"
    unknown = an_object(kind=schedulesets.ScheduleSet)
    assert rows.schedule_set(unknown)["health"] == "waiting"


def test_a_fault_that_two_conditions_name_is_shown_once():
    why = ("InvalidSchedule", "False", "spec.schedule: 61 is no minute")
    conditions = [
        a_condition("Ready", *why),
        a_condition("Stalled", why[0], "True", why[2]),
        a_condition("Suspended", "Suspended", "True", "by hand"),
    ]
    status = {"observedGeneration": 1, "conditions": conditions}
    found = rows.detail(an_object(status=status), (), NOW)["conditions"]
    assert [each["message"] for each in found] == [why[2], "by hand"]

    conditions = [
        a_condition("Ready", "Armed", "True", "the run of 02:00 is tried again: refused"),
        a_condition("Failing", "Network", "True", "refused"),
    ]
    status = {"observedGeneration": 1, "conditions": conditions}
    found = rows.detail(an_object(status=status), (), NOW)["conditions"]
    assert [each["message"] for each in found] == ["refused"]
