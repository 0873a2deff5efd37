"""ScheduleSets at an API server: what gets in, what a status may not do, what people see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
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

KUBECTL = str(Path(sys.executable).with_name("kubectl"))
AT = "2026-12-24T18:00:00Z"
LATER = "2026-12-25T18:00:00Z"
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


@pytest.fixture
def stored(api: kubeapi.KubeApi, kube_namespace: str) -> dict[str, Any]:
    created = api.create(a_schedule_set("customers", namespace=kube_namespace))
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


def test_a_set_that_no_operator_has_seen_says_so(stored: dict[str, Any]) -> None:
    assert stored["status"] == {"observedGeneration": -1}


def test_a_late_writer_cannot_turn_the_status_of_a_set_back(
    api: kubeapi.KubeApi, stored: dict[str, Any]
) -> None:
    counts = {"succeeded": 5, "failed": 4, "missed": 3, "skipped": 2, "since": AT}
    now = {"observedGeneration": 2, "spread": 4, "runs": counts}
    assert _write(api, stored, **now).ok
    for older, says in (
        ({"observedGeneration": 1}, "observedGeneration may not fall"),
        ({"spread": 5}, "the spread of a set never changes"),
        ({"runs": {**counts, "succeeded": 4}}, "counts of status.runs may not fall"),
        ({"runs": {**counts, "skipped": 1}}, "counts of status.runs may not fall"),
        ({"runs": {}}, "counts of status.runs may not fall"),
    ):
        answer = _write(api, stored, **{**now, **older})
        assert not answer.ok, older
        assert says in answer.body["message"]
    assert _write(api, stored, **{**now, "runs": {**counts, "succeeded": 6}}).ok


def test_kubectl_get_shows_how_a_set_stands(
    api: kubeapi.KubeApi, kubeconfig: Path, stored: dict[str, Any]
) -> None:
    written = _write(
        api,
        stored,
        observedGeneration=1,
        members=30_000_000,
        nextDueTime=LATER,
        lagSeconds=1.5,
        target="Stream ticks",
        runs={"failed": 2, "missed": 3},
        durability={"persistence": "aof"},
        conditions=[
            {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": AT,
                "message": "takes members",
            }
        ],
    )
    assert written.ok, written.body["message"]
    namespace = stored["metadata"]["namespace"]
    table = [_row(line) for line in _get(kubeconfig, "sset", namespace).splitlines()]
    assert table[0][:6] == ["NAME", "MEMBERS", "NEXT", "LAG", "SUSPENDED", "READY"]
    assert table[1][:6] == ["customers", "30000000", LATER, "1.5", "false", "True"]
    wide = _get(kubeconfig, "schedulesets.duepoint.dev", namespace, "-o", "wide")
    assert "Stream ticks" in wide
    assert "takes members" in wide
    listed = _get(kubeconfig, "duepoint", namespace, "-o", "name")
    assert "scheduleset.duepoint.dev/customers" in listed


def _get(kubeconfig: Path, what: str, namespace: str, *more: str) -> str:
    done = subprocess.run(
        [KUBECTL, "get", what, "-n", namespace, *more],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _row(line: str) -> list[str]:
    return line.split()


def test_the_crd_of_sets_fits_into_a_client_side_apply() -> None:
    from tests.integration.crds.conftest import CRDS, definition

    path = next(path for path in CRDS if path.stem.endswith("schedulesets"))
    assert len(json.dumps(definition(path))) < 262_144
