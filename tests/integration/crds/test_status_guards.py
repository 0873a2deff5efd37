"""Status has one writer and goes only forward, whoever writes late."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import a_schedule, a_schedule_run

NOON = "2026-12-24T12:00:00Z"
EVENING = "2026-12-24T18:00:00Z"


@pytest.fixture
def schedule(api: kubeapi.KubeApi, kube_namespace: str) -> dict[str, Any]:
    created = api.create(a_schedule("nightly", namespace=kube_namespace))
    assert created.ok, created.body
    return created.body


def _write(api: kubeapi.KubeApi, thing: dict[str, Any], **status: Any) -> kubeapi.Answer:
    """As the operator writes it: guarded by the uid, the whole status at once."""
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": thing["metadata"]["uid"]},
        {"op": "add", "path": "/status", "value": status},
    ]
    path = kubeapi.location(thing) + "/status"
    return api.request("PATCH", path, patch, content_type="application/json-patch+json")


def test_a_scheduled_run_does_not_change_the_schedule_that_it_belongs_to(
    api: kubeapi.KubeApi, kube_namespace: str
) -> None:
    thing = api.create(a_schedule_run("again", namespace=kube_namespace)).body
    assert _write(api, thing, observedGeneration=1).ok
    assert _write(api, thing, observedGeneration=1, scheduleUid="one").ok
    assert _write(api, thing, observedGeneration=1, scheduleUid="one", message="x").ok
    for later in ({"scheduleUid": "two"}, {}):
        answer = _write(api, thing, observedGeneration=1, **later)
        assert not answer.ok
        assert "belongs to the Schedule that it began with" in answer.body["message"]


def test_what_a_user_writes_into_status_is_dropped(
    api: kubeapi.KubeApi, kube_namespace: str
) -> None:
    thing = {**a_schedule("forged", namespace=kube_namespace), "status": {"observedGeneration": 7}}
    assert api.create(thing).ok
    assert api.get(kubeapi.location(thing))["status"] == {"observedGeneration": -1}


def test_a_status_for_another_uid_is_not_written(
    api: kubeapi.KubeApi, schedule: dict[str, Any]
) -> None:
    stranger = {**schedule, "metadata": {**schedule["metadata"], "uid": "another"}}
    assert _write(api, stranger, observedGeneration=1).code == 422
    assert api.get(kubeapi.location(schedule))["status"] == {"observedGeneration": -1}


def test_a_full_status_fits(api: kubeapi.KubeApi, schedule: dict[str, Any]) -> None:
    answer = _write(
        api,
        schedule,
        observedGeneration=1,
        settledThrough=NOON,
        nextScheduleTime=EVENING,
        upcomingTimes=[EVENING] * 5,
        lastScheduleTime=NOON,
        lastSuccessfulTime=NOON,
        lastFailureTime=NOON,
        lastRun={
            "scheduledTime": NOON,
            "startTime": NOON,
            "finishTime": NOON,
            "trigger": "CatchUp",
            "outcome": "Failed",
            "reason": "StatusCode",
            "message": "answered 500",
            "jobName": "nightly-1798135200",
            "httpStatus": 500,
            "attempts": 3,
        },
        active=[
            {"kind": "Job", "apiVersion": "batch/v1", "name": "a", "namespace": "b", "uid": "c"}
        ],
        activeCount=1,
        target="Webhook hooks.example.com/nightly",
        runs={"started": 1, "succeeded": 0, "failed": 1, "missed": 0, "skipped": 0},
        conditions=[
            {
                "type": kind,
                "status": "True",
                "observedGeneration": 1,
                "lastTransitionTime": NOON,
                "reason": "Armed",
                "message": "next slot at 18:00",
            }
            for kind in ("Ready", "LastRunSucceeded", "Overdue")
        ],
    )
    assert answer.ok, answer.body["message"]
    stored = api.get(kubeapi.location(schedule))["status"]
    assert stored == answer.body["status"]
    assert stored["lastRun"]["attempts"] == 3, "no field was pruned"


def test_the_spec_of_a_schedule_run_does_not_change(
    api: kubeapi.KubeApi, kube_namespace: str
) -> None:
    run = api.create(
        a_schedule_run("now", namespace=kube_namespace, trigger={"payload": {"a": 1}})
    ).body
    path = kubeapi.location(run)
    for change in ({"ttlSecondsAfterFinished": 5}, {"trigger": {"payload": {"a": 2}}}):
        answer = api.merge(path, {"spec": change})
        assert answer.code == 422
        assert "the spec of a ScheduleRun does not change" in answer.body["message"]
    assert api.merge(path, {"metadata": {"labels": {"kept": "yes"}}}).ok
    assert _write(api, run, observedGeneration=1, runs={"planned": 1, "started": 1}).ok
