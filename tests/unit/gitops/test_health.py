"""What Argo CD and Flux make of a Schedule's and a ScheduleRun's status."""

from __future__ import annotations

import copy
import re

import pytest

from tests.support import argocd, flux


def a_condition(kind, status="True", reason="", message=""):
    return {
        "type": kind, "status": status, "reason": reason or kind, "message": message,
        "observedGeneration": 2, "lastTransitionTime": "2026-11-22T00:00:00Z",
    }  # fmt: skip


def a_schedule(*conditions, generation=2, spec=(), **status):
    status.setdefault("observedGeneration", 2)
    if conditions:
        status["conditions"] = list(conditions)
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {
            "name": "nightly", "namespace": "reports", "generation": generation,
            "uid": "c0ffee00-0000-4000-8000-000000000000",
        },
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": {}}}, **dict(spec)},
        "status": status,
    }  # fmt: skip


def a_run(*conditions, **runs):
    thing = a_schedule(*conditions, runs=runs)
    thing["kind"] = "ScheduleRun"
    thing["spec"] = {"scheduleName": "nightly", "trigger": {}}
    return thing


def a_set(*conditions, **status):
    thing = a_schedule(*conditions, **status)
    thing["kind"] = "ScheduleSet"
    thing["spec"] = {"stream": {"name": "ticks"}}
    return thing


READY = a_condition("Ready", reason="Armed")
NEXT = "2026-11-23T01:30:00Z"
UNSEEN = a_schedule(observedGeneration=-1)

CASES = [
    pytest.param(UNSEEN, "Progressing", "inProgress", "not seen", id="nobody has looked"),
    pytest.param(
        a_schedule(READY, generation=3), "Progressing", "inProgress", "not seen", id="edited"
    ),
    pytest.param(
        a_schedule(READY, nextScheduleTime=NEXT), "Healthy", "current", f"next run {NEXT}",
        id="armed",
    ),
    pytest.param(
        a_schedule(a_condition("Ready", reason="Suspended", message="INC-42")),
        "Suspended", "current", "INC-42", id="suspended",
    ),
    pytest.param(
        a_schedule(a_condition("Ready", reason="Completed", message="no slot is left")),
        "Healthy", "current", "no slot is left", id="completed",
    ),
    pytest.param(
        a_schedule(
            a_condition("Ready", "False", "InvalidSpec"),
            a_condition("Stalled", reason="InvalidSpec", message="spec.schedule: never"),
        ),
        "Degraded", "failed", "spec.schedule: never", id="stalled",
    ),
    pytest.param(
        a_schedule(
            a_condition("Ready", "Unknown", "QueueUnavailable"),
            a_condition("Reconciling", reason="QueueUnavailable", message="Redis is away"),
        ),
        "Progressing", "inProgress", "Redis is away", id="reconciling",
    ),
    pytest.param(
        a_schedule(
            a_condition("Ready", "Unknown", "SecretUnavailable"),
            a_condition("Reconciling", reason="SecretUnavailable", message="spec.webhook: do"),
        ),
        "Progressing", "inProgress", "SecretUnavailable: spec.webhook: do",
        id="a Secret may not be read",
    ),
    pytest.param(
        a_schedule(
            READY,
            a_condition("Failing", reason="Network", message="Connection refused"),
            nextScheduleTime=NEXT,
        ),
        "Healthy", "current", f"failing: Network: Connection refused; next run {NEXT}",
        id="its runs fail",
    ),
    pytest.param(
        {**a_set(), "status": {"observedGeneration": -1}}, "Progressing", "inProgress",
        "not seen", id="a set that no operator has seen",
    ),
    pytest.param(
        a_set(READY, members=5, nextDueTime=NEXT), "Healthy", "current",
        f"5 members, next due {NEXT}", id="a set",
    ),
    pytest.param(a_set(READY), "Healthy", "current", "0 members", id="an empty set"),
    pytest.param(
        a_set(
            a_condition("Ready", reason="Suspended", message="spec.suspend is true: INC-42"),
            a_condition("Suspended", reason="Suspended", message="spec.suspend is true: INC-42"),
            members=5,
        ),
        "Suspended", "current", "INC-42; 5 members", id="a suspended set",
    ),
    pytest.param(
        a_set(
            a_condition("Ready", "False", "InvalidSpec"),
            a_condition("Stalled", reason="InvalidSpec", message="spec.webhook.url: no"),
        ),
        "Degraded", "failed", "InvalidSpec: spec.webhook.url: no", id="a stalled set",
    ),
    pytest.param(
        a_set(
            a_condition("Ready", "Unknown", "Pending"),
            a_condition("Reconciling", reason="Pending", message="10 of 20 rows"),
        ),
        "Progressing", "inProgress", "Pending: 10 of 20 rows", id="a set with rows to come",
    ),
    pytest.param(
        a_set(READY, a_condition("RowsInvalid", message="1 row is wrong")), "Degraded", "failed",
        "1 row is wrong", id="a set with wrong rows",
    ),
    pytest.param(
        a_set(READY, a_condition("DataLost", reason="MembersLost", message="there were 7")),
        "Degraded", "current", "MembersLost: there were 7", id="a set that lost members",
    ),
    pytest.param(
        a_set(
            a_condition("Ready", "False", "Deleted"),
            a_condition("Deleting", message="7 members are left"),
        ),
        "Progressing", "inProgress", "7 members are left", id="a set that is deleted",
    ),
    pytest.param(
        a_run(planned=5, succeeded=2, failed=1), "Progressing", "inProgress", "3 of 5 runs",
        id="a range under way",
    ),
    pytest.param(
        a_run(
            a_condition("Ready", "Unknown", "Retrying"),
            a_condition(
                "Reconciling", reason="Retrying",
                message="0 of 1 slots ended, 0 running, 1 tried again: Network: refused",
            ),
            planned=1,
        ),
        "Progressing", "inProgress",
        "Retrying: 0 of 1 slots ended, 0 running, 1 tried again: Network: refused",
        id="a run between retries",
    ),
    pytest.param(
        a_run(
            a_condition("Ready", "Unknown", "ScheduleNotFound"),
            a_condition(
                "Reconciling", reason="ScheduleNotFound",
                message="there is no Schedule reports/nightly; it runs once there is one",
            ),
        ),
        "Progressing", "inProgress", "ScheduleNotFound: there is no Schedule reports/nightly",
        id="a run without its Schedule",
    ),
    pytest.param(
        a_run(
            a_condition("Ready", "Unknown", "Pending"),
            a_condition("Reconciling", reason="Pending", message="not in the queue"),
        ),
        "Progressing", "inProgress", "Pending: not in the queue",
        id="a run whose Schedule is not armed",
    ),
    pytest.param(
        a_run(
            a_condition("Ready", "Unknown", "Running"),
            a_condition("Reconciling", reason="Running", message="3 of 5 slots ended, 2 running"),
        ),
        "Progressing", "inProgress", "Running: 3 of 5 slots ended, 2 running",
        id="a range that runs",
    ),
    pytest.param(
        {**a_run(), "status": {"observedGeneration": -1}}, "Progressing", "inProgress", "0 of 0",
        id="a run nobody has looked at",
    ),
    pytest.param(
        a_run(a_condition("Complete", message="5 runs succeeded"), a_condition("Ready")),
        "Healthy", "current", "5 runs", id="a range complete",
    ),
    pytest.param(
        a_run(
            a_condition("Failed", message="1 run failed"), a_condition("Stalled"),
            a_condition("Complete", "False"),
        ),
        "Degraded", "failed", "1 run failed", id="a range failed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("thing", "argo", "_flux", "says"), CASES)
def test_argo_cd_shows_how_it_stands(thing, argo, _flux, says):
    found = argocd.health(thing)
    assert found["status"] == argo
    assert says in found["message"]


@pytest.mark.parametrize(("thing", "_argo", "expected", "_says"), CASES)
def test_flux_waits_fails_or_goes_on(thing, _argo, expected, _says):
    assert flux.status(thing) == expected


def test_run_now_creates_a_schedule_run_beside_the_schedule():
    ((made),) = argocd.act("trigger", a_schedule(READY))
    assert made["operation"] == "create"
    run = made["resource"]
    assert (run["apiVersion"], run["kind"]) == ("duepoint.dev/v1alpha1", "ScheduleRun")
    assert re.fullmatch(r"nightly-\d{14}", run["metadata"]["name"])
    assert run["metadata"]["namespace"] == "reports"
    assert [owner["uid"] for owner in run["metadata"]["ownerReferences"]] == [
        "c0ffee00-0000-4000-8000-000000000000"
    ]
    assert run["spec"]["scheduleName"] == "nightly"
    assert isinstance(run["spec"]["trigger"], dict)  # an empty table would be a list


@pytest.mark.parametrize("suspended", [False, True])
def test_only_the_action_that_changes_something_is_offered(suspended):
    offered = argocd.actions(a_schedule(READY, spec={"suspend": suspended}))
    disabled = {name: bool(action.get("disabled")) for name, action in offered.items()}
    assert disabled == {"trigger": False, "suspend": suspended, "resume": not suspended}


def test_suspend_and_resume_change_nothing_else():
    thing = a_schedule(READY, spec={"suspend": False, "suspendReason": "INC-42"})
    suspended = copy.deepcopy(thing)
    suspended["spec"]["suspend"] = True
    after = argocd.act("suspend", thing)
    assert after["spec"]["suspend"] is True
    assert after["metadata"] == suspended["metadata"]
    resumed = argocd.act("resume", suspended)
    assert resumed["spec"]["suspend"] is False
    assert "suspendReason" not in resumed["spec"]


def test_a_set_is_suspended_and_resumed_and_not_run():
    thing = a_set(READY)
    assert set(argocd.actions(thing)) == {"suspend", "resume"}
    suspended = argocd.act("suspend", thing)
    assert suspended["spec"] == {"stream": {"name": "ticks"}, "suspend": True}
    assert argocd.act("resume", suspended)["spec"]["suspend"] is False
