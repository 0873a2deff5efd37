"""The cause out of what is known: each row is a state of the world, and the cause that follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duepoint.cli.schedules import facts, why
from duepoint.cli.schedules.facts import LeaseFacts
from duepoint.kube.installation import InstallationState
from tests.support.builders import at

NOW = at("2026-03-02 12:00:30")
CREATED = "2026-03-01T11:59:30Z"


def a_schedule(*, spec=None, status=None, conditions=(), generation=1, **metadata):
    listed = [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-03-02T11:00:00Z",
        }
        for kind, value, reason, message in conditions or [("Ready", "True", "Armed", "armed")]
    ]
    return facts.of_object(
        {
            "metadata": {
                "name": "report",
                "namespace": "team-a",
                "uid": "u",
                "generation": generation,
                "creationTimestamp": CREATED,
                **metadata,
            },
            "spec": {
                "schedule": "0 * * * *",
                "webhook": {"url": "https://a.example/"},
                **(spec or {}),
            },
            "status": {
                "observedGeneration": 1,
                "settledThrough": "2026-03-02T12:00:00Z",
                "conditions": listed,
                **(status or {}),
            },
        }
    )


def a_lease(**state):
    return LeaseFacts(
        holder="operator",
        renewed_us=NOW - 1_000_000,
        leads=True,
        state=InstallationState(at="2026-03-02T12:00:20Z", **{"workers": 2, **state}),
    )


GONE = LeaseFacts(renewed_us=NOW - 60_000_000)
SUCCESS = {
    "scheduledTime": "2026-03-02T12:00:00Z",
    "startTime": "2026-03-02T12:00:00.250000Z",
    "finishTime": "2026-03-02T12:00:01Z",
    "outcome": "Succeeded",
}
LATE = {"settledThrough": "2026-03-02T09:00:00Z"}


def a_slot(outcome, reason="", **more):
    return {"recentRuns": [{**SUCCESS, "outcome": outcome, "reason": reason, **more}]}


#: What one condition beside an armed Schedule, one that keeps it from being armed, and the newest
#: slot say; the cause is their reason.
BESIDE = (
    *(("Missed", "Forbidden"), ("Missed", "DeadlineExceeded"), ("CircuitOpen", "CircuitOpen")),
    *(("PodsRefused", "PodsRefused"), ("NameConflict", "NameConflict")),
    ("EndpointGone", "EndpointGone"),
)
INSTEAD = (
    ("Reconciling", "SecretUnavailable"),
    *(("Stalled", "InvalidJobTemplate"), ("Stalled", "InvalidSpec")),
)
NEWEST = (
    *(("Waiting", "Forbidden"), ("Retrying", "Network"), ("Retrying", "Rejected")),
    *(("Failed", "BlockedAddress"), ("Failed", "TargetUnavailable"), ("Failed", "RunFailed")),
    *(("Failed", "Network"), ("Skipped", "QueueFull"), ("Skipped", "ConcurrencyLimit")),
)


ONCE = {"schedule": "@at 2026-03-02T12:00:00Z"}
DONE = [("Ready", "True", "Completed", "no slot is left")]

NOW_ROWS = {
    **{
        f"{kind} beside Ready: {reason}": (
            a_schedule(
                conditions=[("Ready", "True", "Armed", "armed"), (kind, "True", reason, "")]
            ),
            reason,
        )
        for kind, reason in BESIDE
    },
    **{
        f"{kind}: {reason}": (a_schedule(conditions=[(kind, "True", reason, "")]), reason)
        for kind, reason in INSTEAD
    },
    **{
        f"{outcome}: {reason}": (a_schedule(status=a_slot(outcome, reason)), reason)
        for outcome, reason in NEWEST
    },
    "all runs of maxRuns have started": (
        a_schedule(
            spec={"maxRuns": 1},
            conditions=[("Ready", "True", "Completed", "1 run has started; spec.maxRuns is 1")],
            status={**LATE, "recentRuns": [{**SUCCESS, "scheduledTime": "2026-03-02T09:00:00Z"}]},
        ),
        "Completed",
    ),
    "the only slot was given up": (
        a_schedule(spec=ONCE, conditions=DONE, status=a_slot("Failed", "Rejected", message="403")),
        "Rejected",
    ),
    "the only slot is tried again": (
        a_schedule(spec=ONCE, conditions=DONE, status=a_slot("Retrying", "Network")),
        "Network",
    ),
    "the only slot was missed": (
        a_schedule(
            spec=ONCE,
            conditions=[*DONE, ("Missed", "True", "DeadlineExceeded", "late")],
            status=a_slot("Missed", "DeadlineExceeded"),
        ),
        "DeadlineExceeded",
    ),
    "the only slot succeeded": (
        a_schedule(spec=ONCE, conditions=DONE, status={"recentRuns": [SUCCESS]}),
        "Completed",
    ),
    "the only slot had passed when it was created": (
        a_schedule(spec={"schedule": "@at 2026-03-01T11:59:00Z"}, conditions=DONE),
        "BeforeCreation",
    ),
    "its time is over": (
        a_schedule(spec={"endTime": "2026-03-02T10:00:00Z"}, conditions=DONE),
        "Completed",
    ),
    "its time is to come": (
        a_schedule(spec={"startTime": "2026-03-03T00:00:00Z"}),
        "OutsideWindow",
    ),
    "nothing is wrong": (a_schedule(status={"recentRuns": [SUCCESS]}), "Well"),
    "no slot was due yet": (a_schedule(), "Well"),
    "suspended": (a_schedule(spec={"suspend": True}), "Suspended"),
    "a suspension that is over": (
        a_schedule(
            spec={"suspend": True, "suspendUntil": "2026-03-02T10:00:00Z"},
            status={"recentRuns": [SUCCESS]},
        ),
        "Well",
    ),
    "a problem of a completed one comes first": (
        a_schedule(
            conditions=[
                ("Ready", "True", "Completed", "no slot is left"),
                ("NameConflict", "True", "NameConflict", "Job x is in the way"),
            ]
        ),
        "NameConflict",
    ),
    "a Pod that does not start": (
        replace(
            a_schedule(status=a_slot("Running", jobName="report-1")),
            jobs=(
                facts.JobFacts(name="report-1", slot_us=0, is_over=False, pod_trouble="no node"),
            ),
        ),
        "PodNotStarted",
    ),
    "an edit that nobody saw": (a_schedule(generation=2), "NotObserved"),
    "an edit without an operator": (
        replace(a_schedule(generation=2), lease=GONE),
        "NoOperator",
    ),
    "not claimed, and nothing is known": (a_schedule(status=LATE), "NotClaimed"),
    "not claimed without a worker": (
        replace(a_schedule(status=LATE), lease=a_lease(workers=0)),
        "NoWorker",
    ),
    "not claimed without Redis": (
        replace(a_schedule(status=LATE), lease=a_lease(redis_down_since="2026-03-02T10:00:00Z")),
        "QueueUnavailable",
    ),
    "not claimed by a worker with a wrong clock": (
        replace(
            a_schedule(status=LATE),
            lease=a_lease(worker_troubles={"w": "clock: this machine's clock is 3600 s behind"}),
        ),
        "WrongClock",
    ),
    "not claimed by workers that are too slow": (
        replace(a_schedule(status=LATE), lease=a_lease(due=9, lag_seconds=900.0)),
        "NotClaimed",
    ),
}


@pytest.mark.parametrize(("known", "cause"), NOW_ROWS.values(), ids=NOW_ROWS)
def test_the_cause_of_how_it_stands(known, cause):
    assert why.now(known, NOW)[0].cause == cause


SLOT_ROWS = {
    "a slot that failed": (
        a_schedule(status=a_slot("Failed", "Network")),
        "2026-03-02 12:00:00",
        "Network",
    ),
    "one of several that were missed": (
        a_schedule(status=a_slot("Missed", "CatchUpPolicy", since="2026-03-02T08:00:00Z", count=5)),
        "2026-03-02 10:00:00",
        "CatchUpPolicy",
    ),
    "no slot": (a_schedule(), "2026-03-02 11:30:00", "NotASlot"),
    "to come": (a_schedule(), "2026-03-02 13:00:00", "NotYet"),
    "before the creation": (a_schedule(), "2026-03-01 08:00:00", "BeforeCreation"),
    "before startTime": (
        a_schedule(spec={"startTime": "2026-03-02T00:00:00Z"}),
        "2026-03-01 20:00:00",
        "OutsideWindow",
    ),
    "at endTime": (
        a_schedule(spec={"endTime": "2026-03-02T10:00:00Z"}),
        "2026-03-02 10:00:00",
        "OutsideWindow",
    ),
    "nothing remembers it": (a_schedule(), "2026-03-02 03:00:00", "NoRecord"),
    "not claimed": (
        replace(a_schedule(status=LATE), lease=a_lease(workers=0)),
        "2026-03-02 11:00:00",
        "NoWorker",
    ),
    "in a suspension": (
        a_schedule(
            spec={"suspend": True},
            status=LATE,
            managedFields=[
                {
                    "manager": "kubectl-edit",
                    "time": "2026-03-02T09:30:00Z",
                    "fieldsV1": {"f:spec": {"f:suspend": {}}},
                }
            ],
        ),
        "2026-03-02 10:00:00",
        "Suspended",
    ),
}


@pytest.mark.parametrize(("known", "when", "cause"), SLOT_ROWS.values(), ids=SLOT_ROWS)
def test_the_cause_of_one_slot(known, when, cause):
    assert why.of_slot(known, at(when), NOW)[0].cause == cause


@pytest.mark.parametrize("row", ["before the creation", "nothing remembers it"])
def test_a_slot_to_run_by_hand_stands_in_the_command(row):
    known, when, _ = SLOT_ROWS[row]
    answer = why.of_slot(known, at(when), NOW)
    wanted = f"kubectl duepoint trigger report -n team-a --at {when.replace(' ', 'T')}Z"
    assert wanted in why.row(known, answer, at(when))["do"][-1]
    assert any(line.endswith(wanted) for line in why.lines(known, answer, at(when)))


def test_who_suspended_it_and_since_when_is_read_off_the_managed_fields():
    known, _, _ = SLOT_ROWS["in a suspension"]
    found = why.now(known, NOW)[0]
    assert "kubectl-edit" in found.text
    assert found.since_us == at("2026-03-02 09:30:00")


def test_since_when_is_the_oldest_of_the_slots_in_a_row_that_failed_so():
    rows = [
        {
            **SUCCESS,
            "scheduledTime": f"2026-03-02T{hour}:00:00Z",
            "outcome": "Failed",
            "reason": why,
        }
        for hour, why in (("12", "Network"), ("11", "Network"), ("10", "Rejected"))
    ]
    found = why.now(a_schedule(status={"recentRuns": rows}), NOW)[0]
    assert (found.cause, found.since_us) == ("Network", at("2026-03-02 11:00:00"))
