"""ScheduleSets at an API server: what gets in, what a status may not do, what people see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import (
    JOB,
    SECRET_KEY,
    STREAM,
    WEBHOOK,
    a_schedule_set,
    a_webhook,
)

AT = "2026-12-24T18:00:00Z"
JOBS = {"spec": {**JOB["spec"], "ttlSecondsAfterFinished": 3600}}

GOOD = {
    "a stream": {},
    "a webhook": {"webhook": a_webhook(signing={"secretKeyRefs": [SECRET_KEY]})},
    "a topic": {"kafka": {"topic": "ticks", "connectionSecretRef": {"name": "brokers"}}},
    "jobs": {"jobTemplate": JOBS},
    "every default": {
        "defaults": {
            "timeZone": "Europe/Rome",
            "dst": {"gap": "Skip", "overlap": "Both"},
            "jitter": "30s",
            "startingDeadlineSeconds": 600,
            "catchUpPolicy": "All",
            "catchUpLimit": 5,
            "concurrencyPolicy": "Forbid",
        }
    },
    "the largest limits": {
        "limits": {"members": 100_000_000, "payloadBytes": 16_384, "changesPerSecond": 100_000},
        "retention": {"endedSeconds": 2_592_000},
    },
    "nulls everywhere": {
        "suspend": None,
        "suspendReason": None,
        "defaults": {
            "timeZone": None,
            "dst": None,
            "jitter": None,
            "startingDeadlineSeconds": None,
            "catchUpPolicy": None,
            "catchUpLimit": None,
            "concurrencyPolicy": None,
        },
        "limits": {"members": None, "payloadBytes": None, "changesPerSecond": None},
        "retention": {"endedSeconds": None},
        "rows": None,
        "payload": None,
        "webhook": None,
        "kafka": None,
        "jobTemplate": None,
        "stream": STREAM,
    },
    "rows of a ConfigMap": {"rows": {"configMapRef": {"name": "customers", "key": "rows.ndjson"}}},
    "no rows yet": {"rows": {"inline": []}},
    "rows of every form": {
        "rows": {
            "inline": [
                {"id": "a:b~c@d-e_f.g", "schedule": "0 9 * * MON-FRI", "payload": {"n": [1]}},
                {"id": "x" * 128, "at": AT, "suspend": True, "timeZone": "Europe/Rome"},
                {
                    "id": "late",
                    "schedule": "@every 90s",
                    "dst": {"gap": "Skip"},
                    "jitter": "5s",
                    "startingDeadlineSeconds": 60,
                    "catchUpPolicy": "All",
                    "catchUpLimit": 3,
                    "concurrencyPolicy": "",
                },
            ]
        }
    },
}


@pytest.mark.parametrize("fields", GOOD.values(), ids=GOOD)
def test_a_set_is_accepted(api: kubeapi.KubeApi, fields: dict[str, Any]) -> None:
    thing = a_schedule_set("good-set", **fields)
    for answer in (api.create(thing, dry_run=True), api.apply(thing, dry_run=True)):
        assert answer.ok, answer.body["message"]


def test_ten_thousand_rows_are_accepted_and_edited(
    api: kubeapi.KubeApi, kube_namespace: str
) -> None:
    rows = [
        {"id": f"customer-{number}", "schedule": f"{number % 60} 9 * * *"}
        for number in range(10_000)
    ]
    thing = a_schedule_set("many", namespace=kube_namespace, rows={"inline": rows})
    made = api.create(thing)
    assert made.ok, made.body["message"]
    edited = api.merge(kubeapi.location(thing), {"spec": {"suspend": True}})
    assert edited.ok, edited.body["message"]


@pytest.mark.parametrize(
    ("first", "then"),
    [({"stream": STREAM}, {"stream": None, "jobTemplate": JOBS}),
     ({"jobTemplate": JOBS}, {"jobTemplate": None, "stream": STREAM})],
    ids=["to jobs", "from jobs"],
)  # fmt: skip
def test_a_set_of_jobs_stays_one_and_no_other_becomes_one(
    api: kubeapi.KubeApi, kube_namespace: str, first: dict[str, Any], then: dict[str, Any]
) -> None:
    thing = a_schedule_set("kept", namespace=kube_namespace, **first)
    assert api.create(thing).ok
    answer = api.merge(kubeapi.location(thing), {"spec": then})
    assert not answer.ok
    assert "create another set and move its members" in answer.body["message"]
    other = api.merge(
        kubeapi.location(thing), {"spec": {"stream": None, "jobTemplate": None, "webhook": WEBHOOK}}
    )
    assert other.ok is ("stream" in first), other.body
